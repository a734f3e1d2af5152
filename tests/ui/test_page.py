"""The page in a real Chromium: what people see, and can do without a mouse."""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import holdfast
from holdfast import Locks
from tests.engines.chromium import Chromium
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisServer
from tests.engines.shared import shared
from tests.helpers import unique
from tests.ui.served import Served, served

expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests of this file."""
    chromium = shared(Chromium)
    with sync_playwright() as playwright:
        yield playwright.chromium.connect_over_cdp(chromium.url)


@contextlib.contextmanager
def opened(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """The page at this address; any error in it fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.goto(address)
    try:
        yield page
        assert errors == []
    finally:
        context.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of this test's own."""
    return f"sqlite:///{tmp_path / 'locks.db'}"


@pytest.fixture
def locks(url: str) -> Iterator[Locks]:
    """A client of it."""
    with holdfast.connect(url, owner="ann", ttl=60) as made:
        yield made


def row(page: Page, key: str) -> Any:
    """The row of a lock."""
    return page.locator(".rows .row").filter(has=page.get_by_text(key, exact=True))


def waiting(place: str, key: str, owner: str) -> None:
    """Have somebody wait for a lock: another client, which takes a place in the queue."""

    client = holdfast.connect(place)

    def wait() -> None:
        with contextlib.suppress(holdfast.HoldfastError):
            held.append(client.acquire(key, owner=owner, fair=True, timeout=120, ttl=60))

    clients.append(client)
    threading.Thread(target=wait, daemon=True).start()


clients: list[Locks] = []
held: list[Any] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close the clients of those who wait."""
    yield
    held.clear()
    while clients:
        clients.pop().close()


def store_url(kind: str, tmp_path: Path) -> str:
    """A store of this kind."""
    if kind == "redis":
        return f"{shared(RedisServer).url}?namespace={unique()}"
    if kind == "postgresql":
        return shared(PostgreSQL).url()
    return f"sqlite:///{tmp_path / 'locks.db'}"


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgresql"])
def test_a_lock_from_its_birth_to_its_loss(browser: Browser, tmp_path: Path, kind: str) -> None:
    """It appears, somebody waits, it is handed over, taken, and lost, without a reload."""
    place, key = store_url(kind, tmp_path), f"life:{unique()}"
    with holdfast.connect(place, owner="ann", ttl=60) as locks:
        locks.setup()
        with served(place, key) as server, opened(browser, server.address) as page:
            expect(page.locator("#status")).to_have_text("live")
            expect(page.locator("#none")).to_be_visible()
            lease = locks.acquire(key)
            expect(row(page, key)).to_contain_text("ann")
            waiting(place, key, "bob")
            expect(row(page, key).locator(".count")).to_have_text("1")
            expect(row(page, key)).to_contain_text("bob")
            ticket = lease.hand_over(ttl=60)
            expect(row(page, key)).to_contain_text("handed over, not yet taken")
            second = locks.take(ticket, owner="cy")
            expect(row(page, key)).to_contain_text("cy")
            locks.evict(key, reason="it hung", operator="ops")
            expect(row(page, key)).not_to_contain_text("cy")
            expect(row(page, key)).to_contain_text("bob")
            assert second.release() is False


def test_filters(browser: Browser, url: str, locks: Locks) -> None:
    """By text in keys, owners and notes, by prefix, and by whether somebody waits."""
    for key in ("jobs:a", "jobs:b", "db:a"):
        locks.acquire(key, note={"run": f"note-of-{key}"})
    locks.acquire("other", owner="zoe")
    locks.acquire("once").release()
    waiting(url, "db:a", "bob")
    shown = ".rows .row"
    with served(url) as server, opened(browser, server.address) as page:
        expect(page.locator(shown)).to_have_count(4)
        page.keyboard.press("/")
        page.keyboard.type("ZOE")
        expect(page.locator(shown)).to_have_count(1)
        page.fill("#search", "note-of-jobs:b")
        expect(page.locator(shown)).to_have_count(1)
        page.fill("#search", "nothing like this")
        expect(page.locator("#none")).to_have_text("No lock fits this filter.")
        page.keyboard.press("Escape")
        page.fill("#prefix", "jobs:")
        expect(page.locator(shown)).to_have_count(2)
        expect(page.locator("#sum-held")).to_have_text("2")
        page.fill("#prefix", "")
        page.check("#waited")
        expect(page.locator(shown)).to_have_count(1)
        page.uncheck("#waited")
        page.check("#free")
        expect(row(page, "once")).to_contain_text("free")


def test_evict_with_a_reason_by_keyboard_alone(browser: Browser, url: str, locks: Locks) -> None:
    """Open a lock, say why, and its holder is gone; everything without a mouse."""
    lease = locks.acquire("k")
    with served(url, "--allow-evict") as server, opened(browser, server.with_token) as page:
        expect(row(page, "k")).to_be_visible()
        assert "token" not in page.url
        page.focus("#grid")
        page.keyboard.press("Enter")
        expect(page.locator("#detail-key")).to_be_visible()
        expect(page.get_by_role("button", name="Close")).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Evict…")).to_be_focused()
        page.keyboard.press("Enter")
        page.keyboard.type("it hung")
        page.keyboard.press("Tab")
        page.keyboard.type("ops")
        page.keyboard.press("Enter")
        expect(page.locator("#detail")).to_contain_text("ann was evicted by ops: it hung")
        page.keyboard.press("Escape")
        expect(page.locator("#detail")).to_be_hidden()
    with pytest.raises(holdfast.LeaseLost, match="ops: it hung"):
        lease.renew()


def test_evict_without_the_token_is_refused(browser: Browser, url: str, locks: Locks) -> None:
    """The page says so, and the lease lives."""
    lease = locks.acquire("k")
    with served(url, "--allow-evict") as server:
        context = browser.new_context()
        page = context.new_page()
        page.goto(server.address)
        row(page, "k").click()
        page.get_by_role("button", name="Evict…").click()
        page.fill("[name=reason]", "why")
        page.fill("[name=operator]", "me")
        page.get_by_role("button", name="Evict this holder").click()
        expect(page.locator(".said")).to_contain_text("token is missing or wrong")
        context.close()
    lease.renew()


def test_no_button_where_it_is_read_only(browser: Browser, url: str, locks: Locks) -> None:
    """Without --allow-evict there is nothing to press."""
    locks.acquire("k")
    with served(url) as server, opened(browser, server.address) as page:
        row(page, "k").click()
        expect(page.locator("#detail")).to_contain_text("Runs out in")
        expect(page.get_by_role("button", name="Evict…")).to_have_count(0)


def test_five_thousand_locks(browser: Browser, url: str, locks: Locks) -> None:
    """All can be reached, and only those in sight are made."""
    leases = [locks.acquire(f"k:{number:05}", keep=False, ttl=3600) for number in range(5000)]
    with served(url) as server, opened(browser, server.address) as page:
        expect(page.locator("#sum-held")).to_have_text("5,000")
        assert page.locator(".rows .row").count() < 60
        page.focus("#grid")
        page.keyboard.press("End")
        expect(row(page, "k:04999")).to_be_visible()
        assert page.locator(".rows .row").count() < 60
        expect(page.locator("#current")).to_have_attribute("aria-rowindex", "5001")
        page.keyboard.press("Home")
        expect(row(page, "k:00000")).to_be_visible()
        page.fill("#search", "k:02500")
        expect(page.locator(".rows .row")).to_have_count(1)
    assert len(leases) == 5000


HOSTILE = [
    '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>',
    "</bdi></div>{{7*7}}${7*7}&lt;b&gt;",
    "\u202egnp.exe\u202c \u2066x",
    "ab\x00\x1b[2J\nnew line",
    "🔒👩‍👩‍👧 مفتاح שלום 名前",
    "x" * 400,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_text(browser: Browser, url: str, locks: Locks, text: str) -> None:
    """A key, an owner, a note and a reason that are markup, endless or turn around."""
    key = text.replace("\x00", "")
    locks.acquire(key, owner=key[:256], note={key[:50]: key})
    waiting(url, key, f"w{key}"[:256])
    with served(url) as server, opened(browser, server.address) as page:
        expect(page.locator(".rows .row")).to_have_count(1)
        page.locator(".rows .row").click()
        heading = page.locator("#detail-key")
        expect(heading).to_be_visible()
        shown = heading.text_content() or ""
        assert re.search(r"[\x00-\x1f\u202a-\u202e\u2066-\u2069]", shown) is None
        if key.isprintable():
            assert shown == key
        for view in ("timeline", "waits"):
            page.click(f"#tab-{view}")
            page.wait_for_timeout(300)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img, main script").count() == 0
        wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert wide is False


def test_the_timeline_shows_who_held_and_waited(browser: Browser, url: str, locks: Locks) -> None:
    """Bars for holders and waiters, with a text for those who cannot see them."""
    locks.acquire("slow")
    waiting(url, "slow", "bob")
    with served(url) as server, opened(browser, server.address) as page:
        server.lock("slow", lambda lock: lock["waiters"])
        page.click("#tab-timeline")
        lane = page.locator(".lane").filter(has_text="slow")
        expect(lane.locator(".bar.hold")).to_have_count(1)
        expect(lane.locator(".bar.wait")).to_have_count(1)
        told = lane.get_by_role("button").get_attribute("aria-label") or ""
        assert "ann held from" in told
        assert "bob waited from" in told
        assert lane.locator(".gap").count() == 1  # before the page was started
        marks = page.locator("#axis span").all_text_contents()
        assert 4 <= len(marks) <= 8
        assert all(re.fullmatch(r"\d\d:\d\d", mark) for mark in marks), marks
        minutes = [int(mark[:2]) * 60 + int(mark[3:]) for mark in marks]
        steps = {(later - mark) % 1440 for mark, later in itertools.pairwise(minutes)}
        assert len(steps) == 1, marks


def test_cycles_are_marked(browser: Browser, url: str, locks: Locks) -> None:
    """Two that wait for each other raise the alarm in every view."""
    locks.acquire("a", owner="ann")
    locks.acquire("b", owner="bob")
    waiting(url, "a", "bob")
    waiting(url, "b", "ann")
    with served(url) as server, opened(browser, server.address) as page:
        expect(page.locator("#cycles")).to_have_text("1 cycle")
        page.focus("#tab-locks")
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".circle")).to_contain_text("ann waits for b, which bob holds")
        waiting(url, "a", "cy")  # who is in no circle, but stuck behind one
        expect(page.locator(".circle li li")).to_contain_text("cy has waited")


def test_it_says_when_the_server_is_gone(browser: Browser, url: str) -> None:
    """And not that everything is fine."""
    context = browser.new_context()
    page = context.new_page()
    with served(url) as server:
        page.goto(server.address)
        expect(page.locator("#status")).to_have_text("live")
    expect(page.locator("#status")).to_have_attribute("data-state", "trouble")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(browser: Browser, url: str, locks: Locks, scheme: Any) -> None:
    """Text has a contrast of at least 4.5 to what is behind it, light and dark."""
    locks.acquire("k")
    waiting(url, "k", "bob")
    with served(url) as server, opened(browser, server.address, color_scheme=scheme) as page:
        expect(row(page, "k").locator(".count")).to_be_visible()
        for selector in (".key", ".age", ".count", "#store", "#status", ".row.head button", "dt"):
            assert page.locator(selector).first.evaluate(CONTRAST) >= 4.5, selector


@pytest.mark.parametrize("view", ["locks", "timeline", "waits"])
def test_what_a_screen_reader_needs(browser: Browser, url: str, locks: Locks, view: str) -> None:
    """Everything that can be used has a name, ids are unique, and roles are whole."""
    locks.acquire("a", owner="ann")
    locks.acquire("b", owner="bob")
    for key, owner in (("a", "bob"), ("b", "ann"), ("a", "cy")):
        waiting(url, key, owner)
    with served(url, "--allow-evict") as server, opened(browser, server.with_token) as page:
        expect(page.locator("#cycles")).to_be_visible()
        row(page, "a").click()
        page.get_by_role("button", name="Evict…").click()
        page.click(f"#tab-{view}")
        expect(page.locator(f"#view-{view}")).to_be_visible()
        expect(page.get_by_role("tab", selected=True)).to_have_id(f"tab-{view}")
        assert page.evaluate(UNNAMED) == []
        if view == "locks":
            head = page.get_by_role("columnheader", name="Waiting")
            head.get_by_role("button").click()
            expect(head).to_have_attribute("aria-sort", "ascending")
            expect(page.locator("[aria-sort]")).to_have_count(1)


# Faults, each in words: what can be used and has no name, ids that are there twice or not at all,
# rows outside of a grid, cells outside of a row.
UNNAMED = """() => {
  const faults = [], ids = new Set();
  const shown = (node) => node.checkVisibility();
  const text = (id) => document.getElementById(id)?.textContent.trim();
  for (const node of document.querySelectorAll("[id]")) {
    if (ids.has(node.id)) faults.push(`twice: ${node.id}`);
    ids.add(node.id);
  }
  for (const node of document.querySelectorAll("*"))
    for (const name of ["aria-controls", "aria-labelledby", "aria-activedescendant"])
      for (const id of (node.getAttribute(name) ?? "").split(" ").filter(Boolean))
        if (!ids.has(id)) faults.push(`${name} names ${id}`);
  const usable = "a, button, input, textarea, [tabindex], [role=grid], [role=tabpanel], aside";
  for (const node of [...document.querySelectorAll(usable)].filter(shown)) {
    const named = node.getAttribute("aria-label") || text(node.getAttribute("aria-labelledby"))
      || node.closest("label")?.textContent.trim() || node.textContent.trim();
    if (!named) faults.push(`no name: ${node.outerHTML.slice(0, 90)}`);
  }
  for (const [role, inside] of [["row", "grid"], ["gridcell", "row"], ["columnheader", "row"],
      ["tab", "tablist"], ["listitem", "list"]])
    for (const node of document.querySelectorAll(`[role=${role}]`))
      if (!node.closest(`[role=${inside}]`)) faults.push(`${role} outside of ${inside}`);
  for (const node of document.querySelectorAll("img:not([alt])")) faults.push(`alt: ${node.src}`);
  if (document.querySelectorAll("h1").length !== 1 || !document.documentElement.lang)
    faults.push("no single heading, or no language");
  return faults;
}"""

CONTRAST = """(node) => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (text) => {
    const [r, g, b] = parse(text).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let behind = node;
  while (behind && /rgba\\(.*, 0\\)|transparent/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
  const [a, b] = [light(getComputedStyle(node).color), light(getComputedStyle(behind ?? document.body).backgroundColor)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""  # noqa: E501


def test_names_of_served() -> None:
    """The port is the one in the address."""
    assert Served("http://127.0.0.1:8420/", "").port == 8420
