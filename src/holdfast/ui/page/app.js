"use strict";
// The live page of Holdfast. What others wrote (keys, owners, notes, reasons) only ever becomes text:
// nothing here makes HTML of a string, and the content security policy forbids it as well.

const ROW = 48; // the height of a row, as in the style sheet
const $ = (id) => document.getElementById(id);
const state = {
  locks: new Map(), ahead: 0, about: {}, token: "", view: "locks", list: [], current: 0, open: null,
  sort: "key", down: false, range: 900, back: 0, timeline: null, seen: new Map(),
};

// --- text ---------------------------------------------------------------------------------------

function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Control characters and those that turn the direction of text around are shown, not obeyed.
const unseen = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const visible = (text) => String(text).replace(unseen, (char) =>
  char === "\u200d" ? char : "\\u" + char.codePointAt(0).toString(16).padStart(4, "0"));
const theirs = (text, tag = "bdi", props = {}) => el(tag, { dir: "auto", ...props }, visible(text));

function span(seconds) {
  const s = Math.max(0, seconds);
  if (s < 1) return "0 s";
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}
const clock = (at) => new Date((at - state.ahead) * 1000).toLocaleTimeString([], { hour12: false });
const now = () => Date.now() / 1000 + state.ahead; // the server's time
const mode = (party) => (party.limit ? `one of ${party.limit}` : party.mode);
function hue(owner) {
  let hash = 7;
  for (const char of owner) hash = (hash * 31 + char.codePointAt(0)) >>> 0;
  return (hash * 137) % 360;
}
function dot(owner) {
  const made = el("span", { class: "dot", "aria-hidden": "true" });
  made.style.setProperty("--h", hue(owner));
  return made;
}

// --- the server ----------------------------------------------------------------------------------

const headers = () => (state.token ? { Authorization: `Bearer ${state.token}` } : {});
async function ask(path) {
  const answer = await fetch(path, { headers: headers() });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

function status(name, text) { $("status").dataset.state = name; $("status").textContent = text; }
function trouble(text) { $("trouble").hidden = !text; $("trouble").textContent = text ? `The store cannot be read: ${visible(text)}` : ""; }

async function listen() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 8000)) {
    try {
      const answer = await fetch("api/updates", { headers: headers() });
      if (!answer.ok) throw new Error((await answer.json()).error);
      pause = 500;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) if (part.startsWith("data: ")) update(JSON.parse(part.slice(6)));
      }
      status("trouble", "the page's server has ended");
    } catch (problem) {
      status("trouble", problem instanceof TypeError ? "the page's server does not answer" : problem.message);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

function update(told) {
  state.ahead = told.now - Date.now() / 1000;
  if (told.type === "snapshot") {
    state.locks = new Map(told.locks.map((lock) => [lock.key, lock]));
    trouble(told.trouble);
    status(told.trouble ? "trouble" : "live", told.trouble ? "store unreachable" : "live");
  } else if (told.type === "trouble") {
    trouble(told.trouble);
    status("trouble", "store unreachable");
    return;
  } else {
    trouble("");
    status("live", "live");
    if (told.type === "beat") return;
    for (const lock of told.locks) { state.locks.set(lock.key, lock); state.seen.set(lock.key, now()); }
    for (const key of told.gone) state.locks.delete(key);
    for (const [key, expiries] of Object.entries(told.renewed)) {
      const lock = state.locks.get(key);
      if (lock) lock.holders.forEach((holder, at) => { holder.expires = expiries[at]; });
    }
    if (!told.locks.length && !told.gone.length) return; // only renewals: the clock shows them
  }
  schedule();
}

let scheduled = false;
function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => { scheduled = false; render(); });
}

// --- locks ----------------------------------------------------------------------------------------

const ranks = {
  key: (lock) => lock.key,
  owner: (lock) => lock.holders[0]?.owner ?? "\uffff",
  age: (lock) => lock.holders[0]?.since ?? Infinity,
  left: (lock) => lock.holders[0]?.expires ?? Infinity,
  waiting: (lock) => -lock.waiters.length,
};

function matches(lock) {
  if (!$("free").checked && !lock.holders.length && !lock.waiters.length && !lock.fault) return false;
  if ($("waited").checked && !lock.waiters.length) return false;
  if (!lock.key.startsWith($("prefix").value)) return false;
  const wanted = $("search").value.toLowerCase();
  if (!wanted) return true;
  return lock.key.toLowerCase().includes(wanted)
    || lock.holders.some((one) => one.owner.toLowerCase().includes(wanted) || JSON.stringify(one.note).toLowerCase().includes(wanted))
    || lock.waiters.some((one) => one.owner.toLowerCase().includes(wanted));
}

function render() {
  const rank = ranks[state.sort];
  const before = state.list[state.current];
  state.list = [...state.locks.values()].filter(matches).map((lock) => [rank(lock), lock])
    .sort((a, b) => ((a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1].key < b[1].key ? -1 : 1) * (state.down ? -1 : 1)))
    .map((pair) => pair[1]);
  const again = before ? state.list.findIndex((lock) => lock.key === before.key) : -1;
  state.current = again >= 0 ? again : Math.min(state.current, Math.max(0, state.list.length - 1));
  sums();
  prefixes();
  if (state.view === "locks") rows(true);
  if (state.view === "waits") waits();
  alarms();
  if (state.open !== null) detail(false);
}

function sums() {
  let held = 0, waiting = 0, first = Infinity;
  for (const lock of state.list) {
    held += lock.holders.length;
    waiting += lock.waiters.length;
    for (const one of lock.waiters) first = Math.min(first, one.since);
  }
  $("sum-held").textContent = held.toLocaleString();
  $("sum-waiting").textContent = waiting.toLocaleString();
  $("sum-longest").textContent = first === Infinity ? "–" : span(now() - first);
}

function prefixes() {
  const counts = new Map();
  for (const key of state.locks.keys()) {
    const part = /^[^:/]{1,40}[:/]/.exec(key)?.[0];
    if (part) counts.set(part, (counts.get(part) ?? 0) + 1);
  }
  const shown = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 40).map((pair) => pair[0]);
  const list = $("prefixes");
  if (list.dataset.shown === shown.join("\n")) return;
  list.dataset.shown = shown.join("\n");
  list.replaceChildren(...shown.map((prefix) => el("option", { value: prefix })));
}

// Only the rows that can be seen exist. They are used again while one scrolls.
const pool = new Map(); // key -> row
function rows(rebuild) {
  const box = $("rows"), { list } = state;
  $("space").style.height = `${list.length * ROW}px`;
  $("grid").setAttribute("aria-rowcount", list.length + 1);
  document.querySelector(".row.head").style.paddingRight = `${18 + box.offsetWidth - box.clientWidth}px`; // as wide as a row
  $("none").hidden = list.length > 0;
  $("none").textContent = state.locks.size ? "No lock fits this filter." : "Nobody holds a lock, and nobody waits for one.";
  const from = Math.max(0, Math.floor(box.scrollTop / ROW) - 6);
  const to = Math.min(list.length, Math.ceil((box.scrollTop + box.clientHeight) / ROW) + 6);
  const wanted = new Set();
  for (let at = from; at < to; at++) {
    const lock = list[at];
    wanted.add(lock.key);
    let row = pool.get(lock.key);
    if (!row || (rebuild && row.lock !== lock)) {
      const made = rowOf(lock, !row && state.seen.get(lock.key) > now() - 1.5);
      if (row) row.replaceWith(made); else box.append(made);
      made.lock = lock;
      pool.set(lock.key, (row = made));
    }
    row.style.transform = `translateY(${at * ROW}px)`;
    row.setAttribute("aria-rowindex", at + 2);
    row.setAttribute("aria-selected", String(lock.key === state.open));
    row.classList.toggle("current", at === state.current);
    if (at === state.current) { row.id = "current"; } else row.removeAttribute("id");
  }
  for (const [key, row] of pool) if (!wanted.has(key)) { row.remove(); pool.delete(key); }
  $("grid").setAttribute("aria-activedescendant", list.length ? "current" : "");
  tick();
}

function rowOf(lock, isNew) {
  const [holder] = lock.holders;
  const cell = (...inside) => el("span", { role: "gridcell" }, ...inside);
  const more = lock.holders.length > 1 ? el("span", { class: "sub" }, ` and ${lock.holders.length - 1} more`) : null;
  const by = lock.fault ? el("span", { class: "fault" }, `unreadable: ${visible(lock.fault)}`)
    : !holder ? el("span", { class: "free" }, lock.waiters.length ? "nobody; kept for who waits" : "free")
    : el("span", {}, dot(holder.owner), theirs(holder.owner), more,
      holder.offered ? el("span", { class: "sub" }, " · handed over, not yet taken") : null,
      holder.mode !== "exclusive" ? el("span", { class: "sub" }, ` · ${mode(holder)}`) : null);
  const left = el("span", { class: "left" }, el("i", { "aria-hidden": "true" }, el("b")), el("span"));
  const [waiter] = lock.waiters;
  const waiting = waiter ? el("span", {}, el("span", { class: "count" }, String(lock.waiters.length)), theirs(waiter.owner), el("span", { class: "sub wait-time" })) : "";
  return el("div", { class: isNew ? "row new" : "row", role: "row" },
    cell(theirs(lock.key, "bdi", { class: "key" })), cell(by), cell(el("span", { class: "age" })), cell(holder ? left : ""), cell(waiting));
}

// Once a second the times of the rows that can be seen go on.
function tick() {
  for (const row of pool.values()) {
    const lock = row.lock, [holder] = lock.holders, [waiter] = lock.waiters;
    if (holder) {
      row.querySelector(".age").textContent = span(now() - holder.since);
      const left = row.querySelector(".left");
      if (holder.expires === null) left.lastChild.textContent = "not known";
      else {
        const rest = Math.max(0, holder.expires - now());
        left.classList.toggle("low", rest < holder.ttl / 3);
        left.firstChild.firstChild.style.transform = `scaleX(${Math.min(1, rest / holder.ttl)})`;
        left.lastChild.textContent = span(rest);
      }
    }
    if (waiter) row.querySelector(".wait-time").textContent = ` · ${span(now() - waiter.since)}`;
  }
}

function go(to) {
  if (!state.list.length) return;
  state.current = Math.max(0, Math.min(state.list.length - 1, to));
  const box = $("rows"), top = state.current * ROW;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
  rows(false);
}

// --- one lock -------------------------------------------------------------------------------------

function show(key) { state.open = key; detail(true); rows(false); }
function hide() {
  if (state.open === null) return;
  state.open = null;
  $("detail").hidden = true;
  rows(false);
  if (state.view === "locks") $("grid").focus();
}

function detail(isNew) {
  const aside = $("detail");
  if (!isNew && aside.contains(document.activeElement) && /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
  const lock = state.locks.get(state.open) ?? { key: state.open, holders: [], waiters: [], history: [], fence: 0 };
  const mark = JSON.stringify([lock.fence, lock.holders.map((one) => one.fence), lock.waiters.map((one) => one.owner)]);
  if (!isNew && aside.dataset.mark === mark) return times();
  aside.dataset.mark = mark;
  aside.hidden = false;
  aside.replaceChildren(
    el("button", { class: "close", "aria-label": "Close", onclick: hide }, "×"),
    theirs(lock.key, "h2", { id: "detail-key" }),
    el("p", { class: "sub" }, lock.fault ? `Unreadable: ${visible(lock.fault)}` : lock.holders.length ? `Last fence ${lock.fence}` : `Free, last fence ${lock.fence}`),
    ...(lock.holders.length ? [el("h3", {}, "Held by")] : []),
    ...lock.holders.map((holder) => holderCard(lock, holder)),
    ...(lock.waiters.length ? [el("h3", {}, `Waiting (${lock.waiters.length})`), el("ol", { class: "turns" }, ...lock.waiters.slice(0, 200).map((one) =>
      el("li", {}, theirs(one.owner, "span"), el("span", { class: "sub", "data-since": one.since }))))] : []),
    ...(lock.history.length ? [el("h3", {}, "What happened"), el("ul", { class: "past" }, ...[...lock.history].reverse().map(past))] : []),
  );
  times();
  if (isNew) aside.querySelector(".close").focus();
}

function times() {
  for (const one of $("detail").querySelectorAll("[data-since]")) one.textContent = span(now() - one.dataset.since);
  for (const one of $("detail").querySelectorAll("[data-expires]")) one.textContent = one.dataset.expires ? span(one.dataset.expires - now()) : "not known";
}

function holderCard(lock, holder) {
  const note = Object.entries(holder.note).map(([name, value]) => [el("dt", {}, visible(name)), theirs(typeof value === "string" ? value : JSON.stringify(value), "dd")]).flat();
  return el("div", { class: "party" }, el("div", {}, dot(holder.owner), theirs(holder.owner, "strong")),
    el("dl", { class: "facts" },
      el("dt", {}, "Mode"), el("dd", {}, mode(holder) + (holder.offered ? ", handed over and not yet taken" : "")),
      el("dt", {}, "Fence"), el("dd", {}, String(holder.fence)),
      el("dt", {}, "Since"), el("dd", {}, `${clock(holder.since)}, for `, el("span", { "data-since": holder.since })),
      el("dt", {}, "Runs out in"), el("dd", { "data-expires": holder.expires ?? "" }),
      ...note),
    state.about.evict ? evicting(lock, holder) : null);
}

function past(one) {
  const what = { expired: "ran out", evicted: "was evicted", "handed over": "handed over" }[one.what];
  return el("li", {}, el("span", { class: "sub" }, `${clock(one.at)} `), theirs(one.owner), ` ${what}`,
    one.by ? (one.what === "evicted" ? " by " : " to ") : "", one.by ? theirs(one.by) : "", one.reason ? ": " : "", one.reason ? theirs(one.reason) : "");
}

function evicting(lock, holder) {
  const box = el("div");
  const ask = el("button", { class: "danger", onclick: () => { box.replaceChildren(form); form.querySelector("input").focus(); } }, "Evict…");
  const reason = el("input", { required: "", maxlength: 500, name: "reason", autocomplete: "off" });
  const operator = el("input", { required: "", maxlength: 200, name: "operator" });
  operator.value = sessionStorage.getItem("operator") ?? "";
  const said = el("span", { class: "said", role: "status" });
  const form = el("form", { class: "form", onsubmit: async (event) => {
    event.preventDefault();
    sessionStorage.setItem("operator", operator.value);
    said.className = "said";
    said.textContent = "Evicting…";
    try {
      const answer = await fetch("api/evict", { method: "POST", headers: { ...headers(), "Content-Type": "application/json" },
        body: JSON.stringify({ key: lock.key, fence: holder.fence, reason: reason.value, operator: operator.value }) });
      const told = await answer.json();
      if (!answer.ok) throw new Error(told.error);
      said.textContent = told.evicted.length ? "Evicted." : "It was released meanwhile.";
      if (told.evicted.length && state.open === lock.key) { // what changed may have come before the answer
        document.activeElement.blur();
        $("detail").dataset.mark = "";
        detail(false);
        $("detail").querySelector(".close").focus();
      }
    } catch (problem) {
      said.className = "said bad";
      said.textContent = problem.message;
    }
  } }, el("label", {}, "Reason, for the holder and the log", reason), el("label", {}, "Who you are", operator),
    el("div", {}, el("button", { class: "danger sure" }, "Evict this holder"), el("button", { class: "plain", type: "button", onclick: () => box.replaceChildren(ask) }, "Cancel")), said);
  box.append(ask);
  return box;
}

// --- the timeline ----------------------------------------------------------------------------------

// Round times of the clock on the wall, as many as there is room for, and where they are.
const STEPS = [15, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600];
function marks(since, until) {
  const step = STEPS.find((one) => (until - since) / one <= 8) ?? STEPS.at(-1);
  const zone = -new Date().getTimezoneOffset() * 60 - state.ahead;
  const found = [];
  for (let at = Math.ceil((since + zone) / step) * step - zone; at <= until; at += step) {
    const part = (at - since) / (until - since);
    const text = clock(Math.round(at - state.ahead) + state.ahead);
    if (part > 0.03 && part < 0.97) found.push([part, step < 60 ? text : text.slice(0, 5)]);
  }
  return found;
}

async function timeline() {
  const until = now() - state.back, since = until - state.range;
  const prefix = $("prefix").value;
  let told;
  try {
    told = await ask(`api/timeline?since=${since}&until=${until}&prefix=${encodeURIComponent(prefix)}`);
  } catch { return; }
  if (state.view !== "timeline") return;
  $("later").disabled = state.back === 0;
  $("shown").textContent = `${clock(since)} to ${state.back ? clock(until) : "now"}${told.cut ? ", the latest 20,000 spans" : ""}`;
  $("axis").replaceChildren(...marks(since, until).map(([part, text]) => {
    const mark = el("span", {}, text);
    mark.style.left = `${part * 100}%`;
    return mark;
  }));
  const wanted = $("search").value.toLowerCase();
  const lanes = new Map();
  const lane = (key) => lanes.get(key) ?? (lanes.set(key, { spans: [], ticks: [] }), lanes.get(key));
  for (const one of told.spans) if (`${one.key} ${one.owner}`.toLowerCase().includes(wanted)) lane(one.key).spans.push(one);
  for (const one of told.unseen) if (one.key.toLowerCase().includes(wanted)) lane(one.key).ticks.push(one);
  const at = (time) => Math.max(0, Math.min(100, ((time - since) / state.range) * 100));
  const gaps = [...told.gaps];
  if (told.observed_since && told.observed_since > since) gaps.push({ start: since, end: told.observed_since, why: "the page was not running" });
  // Those who were waited for come first, the longest wait before the others.
  const longest = ({ spans }) => Math.max(0, ...spans.filter((one) => one.kind === "wait").map((one) => (one.end ?? until) - Math.max(since, one.start)));
  const shownKeys = [...lanes].map(([key, found]) => [longest(found), key, found])
    .sort((a, b) => b[0] - a[0] || (a[1] < b[1] ? -1 : 1)).slice(0, 300).map(([, key, found]) => [key, found]);
  $("lanes").replaceChildren(...shownKeys.map(([key, { spans, ticks }]) => {
    const track = el("div", { class: "track", "aria-hidden": "true" });
    for (const gap of gaps) track.append(place(el("div", { class: "gap", title: `Not observed: ${gap.why}` }), at(gap.start), at(gap.end)));
    const holds = shelves(spans.filter((one) => one.kind === "hold"), until), waited = shelves(spans.filter((one) => one.kind === "wait"), until);
    for (const one of spans) {
      const end = one.end ?? until, hold = one.kind === "hold";
      const bad = one.ending === "evicted" || one.ending === "expired";
      const title = `${visible(one.owner)} ${hold ? "held" : "waited"} ${span(end - one.start)}${one.end ? `, ${one.ending} ${visible(one.detail)}` : ", still"}`;
      const bar = el("div", { class: `bar ${hold ? "hold" : "wait"}${bad ? " bad" : ""}${one.end ? "" : " open"}`, title }, hold && at(end) - at(one.start) > 6 ? visible(one.owner) : "");
      bar.style.setProperty("--h", hue(one.owner));
      bar.style.top = `${hold ? 7 + holds.of.get(one) * 20 : 9 + holds.count * 20 + waited.of.get(one) * 12}px`;
      track.append(place(bar, at(one.start), at(end)));
    }
    for (const one of ticks) track.append(place(el("div", { class: "tick", title: `Somebody held it and was gone before the next look (fence ${one.fence})` }), at(one.at)));
    const lane = el("div", { class: "lane", role: "listitem" }, el("button", { onclick: () => show(key), "aria-label": story(key, spans, ticks) }, theirs(key)), track);
    lane.style.height = `${Math.max(44, 16 + Math.max(1, holds.count) * 20 + waited.count * 12)}px`;
    return lane;
  }));
  if (!shownKeys.length) $("lanes").replaceChildren(el("p", { class: "none" }, "Nothing was held in this time, as far as the page has looked."));
}

// Spans that overlap lie on shelves above each other, eight at most.
function shelves(spans, until) {
  const ends = [], of = new Map();
  for (const one of [...spans].sort((a, b) => a.start - b.start)) {
    let shelf = ends.findIndex((end) => end <= one.start + 0.05);
    if (shelf < 0) shelf = Math.min(ends.length, 7);
    ends[shelf] = Math.max(ends[shelf] ?? 0, one.end ?? until);
    of.set(one, shelf);
  }
  return { of, count: ends.length };
}

const story = (key, spans, ticks) => `${visible(key)}: ` + ([...spans].reverse().slice(-8).map((one) =>
  `${visible(one.owner)} ${one.kind === "hold" ? "held" : "waited"} from ${clock(one.start)} ${one.end ? `to ${clock(one.end)}${one.ending === "released" ? "" : `, ${one.ending}`}` : "until now"}`).join("; ")
  + (ticks.length ? `; ${ticks.length} held it unseen between two looks` : ""));

function place(node, from, to) {
  node.style.left = `${from}%`;
  if (to !== undefined) node.style.width = `${Math.max(0, to - from)}%`;
  return node;
}

// --- who waits for whom ------------------------------------------------------------------------------

function edges() {
  const found = [];
  for (const lock of state.locks.values())
    for (const waiter of lock.waiters) for (const holder of lock.holders) found.push({ waiter: waiter.owner, holder: holder.owner, key: lock.key, since: waiter.since });
  return found;
}

// Everybody who can reach themselves by waiting; each group once.
function circles(found) {
  const next = new Map();
  for (const one of found) next.set(one.waiter, (next.get(one.waiter) ?? new Set()).add(one.holder));
  const groups = [], done = new Set();
  for (const start of next.keys()) {
    if (done.has(start)) continue;
    const path = reach(start, next);
    if (path) { groups.push(path); path.forEach((owner) => done.add(owner)); }
  }
  return groups;
}
function reach(start, next) {
  const from = new Map([[start, null]]), queue = [start];
  while (queue.length) {
    const here = queue.shift();
    for (const there of next.get(here) ?? []) {
      if (there === start) {
        const path = [];
        for (let at = here; at !== null; at = from.get(at)) path.unshift(at);
        return path;
      }
      if (!from.has(there)) { from.set(there, here); queue.push(there); }
    }
  }
  return null;
}

function alarms() {
  const found = circles(edges());
  $("cycles").hidden = !found.length;
  $("cycles").textContent = found.length === 1 ? "1 cycle" : `${found.length} cycles`;
}

function waits() {
  const found = edges(), groups = circles(found);
  const waiters = new Map(), inCircle = new Set(groups.flat());
  for (const one of found) waiters.set(one.holder, [...(waiters.get(one.holder) ?? []), one]);
  const waiting = new Set(found.map((one) => one.waiter));
  const roots = [...waiters.keys()].filter((owner) => !waiting.has(owner)).sort();
  const branch = (owner, above) => {
    const below = (waiters.get(owner) ?? []).filter((one) => !above.has(one.waiter)).sort((a, b) => a.since - b.since).slice(0, 100);
    return below.length ? el("ul", {}, ...below.map((one) => el("li", {}, dot(one.waiter), theirs(one.waiter), el("span", { class: "via" }, " has waited ", span(now() - one.since), " for "),
      el("button", { onclick: () => show(one.key) }, theirs(one.key)), branch(one.waiter, new Set([...above, one.waiter]))))) : "";
  };
  const circle = (group) => el("div", { class: "circle", role: "group", "aria-label": "A cycle" }, el("strong", {}, "These wait for each other, and none of them gets on:"),
    el("ul", { class: "tree" }, ...group.map((owner, at) => {
      const edge = found.find((one) => one.waiter === owner && one.holder === group[(at + 1) % group.length]);
      return el("li", {}, dot(owner), theirs(owner), " waits for ", edge ? el("button", { onclick: () => show(edge.key) }, theirs(edge.key)) : "", ", which ", theirs(group[(at + 1) % group.length]), " holds", branch(owner, new Set(group)));
    })));
  $("waits").replaceChildren(...groups.map(circle),
    roots.length ? el("ul", { class: "tree" }, ...roots.map((owner) => el("li", {}, dot(owner), theirs(owner, "strong"), el("span", { class: "via" }, " waits for nobody"), branch(owner, new Set([owner])))))
      : groups.length ? "" : el("p", { class: "none" }, "Nobody waits for anybody."));
  return inCircle;
}

// --- views and keys -----------------------------------------------------------------------------------

const views = ["locks", "timeline", "waits"];
function open(view) {
  state.view = view;
  for (const name of views) {
    $(`view-${name}`).hidden = name !== view;
    const tab = $(`tab-${name}`);
    tab.setAttribute("aria-selected", String(name === view));
    tab.tabIndex = name === view ? 0 : -1;
  }
  $("waited").parentElement.hidden = $("free").parentElement.hidden = view !== "locks";
  if (view === "timeline") timeline();
  else render();
}

function start() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) { sessionStorage.setItem("token", given); history.replaceState(null, "", location.pathname); }
  state.token = sessionStorage.getItem("token") ?? "";

  for (const name of views) $(`tab-${name}`).addEventListener("click", () => open(name));
  document.querySelector("nav").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = views[(views.indexOf(state.view) + step + views.length) % views.length];
    open(next);
    $(`tab-${next}`).focus();
  });
  for (const name of ["search", "prefix"]) $(name).addEventListener("input", () => { $("rows").scrollTop = 0; if (state.view === "timeline") timeline(); else schedule(); });
  for (const name of ["waited", "free"]) $(name).addEventListener("change", schedule);
  $("rows").addEventListener("scroll", () => rows(false), { passive: true });
  $("rows").addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (!row) return;
    state.current = state.list.indexOf(row.lock);
    show(row.lock.key);
  });
  for (const head of document.querySelectorAll("[data-sort]")) head.addEventListener("click", () => {
    state.down = state.sort === head.dataset.sort && !state.down;
    state.sort = head.dataset.sort;
    for (const one of document.querySelectorAll("[aria-sort]")) one.removeAttribute("aria-sort");
    head.parentElement.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    render();
  });
  $("grid").addEventListener("keydown", (event) => {
    if (event.target !== $("grid")) return;
    const page = Math.max(1, Math.floor($("rows").clientHeight / ROW) - 1);
    const to = { ArrowDown: state.current + 1, ArrowUp: state.current - 1, PageDown: state.current + page, PageUp: state.current - page, Home: 0, End: state.list.length - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); go(to); }
    else if (event.key === "Enter" && state.list[state.current]) { event.preventDefault(); show(state.list[state.current].key); }
  });
  document.addEventListener("keydown", (event) => {
    const writing = /^(INPUT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !writing) { event.preventDefault(); $("search").focus(); }
    if (event.key === "Escape") { if (event.target === $("search")) { $("search").value = ""; schedule(); $("grid").focus(); } else hide(); }
  });
  for (const button of document.querySelectorAll("[data-range]")) button.addEventListener("click", () => {
    for (const one of document.querySelectorAll("[data-range]")) one.removeAttribute("aria-pressed");
    button.setAttribute("aria-pressed", "true");
    state.range = Number(button.dataset.range);
    timeline();
  });
  $("earlier").addEventListener("click", () => { state.back += state.range / 2; timeline(); });
  $("later").addEventListener("click", () => { state.back = Math.max(0, state.back - state.range / 2); timeline(); });
  new ResizeObserver(() => rows(false)).observe($("rows"));
  setInterval(() => {
    if (document.hidden) return;
    sums();
    if (state.view === "locks") tick();
    if (state.view === "timeline" && state.back === 0) timeline();
    if (state.view === "waits") waits();
    if (state.open !== null) times();
  }, 1000);
  ask("api/about").then((about) => {
    state.about = about;
    $("store").textContent = visible(about.store) + (about.prefix ? `, under ${visible(about.prefix)}` : "");
    $("store").title = visible(about.store);
  }).catch(() => {}).finally(listen);
}
start();
