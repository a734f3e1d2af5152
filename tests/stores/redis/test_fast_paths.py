"""One law: the scripts with fast paths, the scripts without, and `core/rules.py` always agree.

The same random runs, on usual records and on odd ones that somebody else could have written, go
through a store with fast paths and through one without. Beside each of them the rules run on a
record of their own; verdicts and records must be equal after every command. And every fast path
must be seen to be taken: a script that ends where its full rules would begin says which.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from holdfast.core.commands import Claim, Command, Free, Granted, Mismatch, Renew
from holdfast.core.contract import Swapped
from holdfast.core.records import SECOND, TOMBSTONE, Holder, Record, Waiter
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.codec import Encoder
from holdfast.stores.redis.record_text import Names, coded
from holdfast.stores.redis.scripts import ALL, CLAIM, FREE, RENEW, Script
from holdfast.stores.registry import open_store
from tests.engines.redis import RedisServer, client
from tests.stores.redis.test_rules import EVENTS, TOKENS, TTLS, Model, a_run, listening

WAYS = ("fast", "full", "in place", "in place without the rights")
LONG = 60 * SECOND


@pytest.fixture(params=WAYS)
def either(request: pytest.FixtureRequest, server: RedisServer) -> Iterator[RedisStore]:
    """A store with the fast paths, one without, and one that takes every record for a long one,
    for a user who may change it in place and for one who may not."""
    url = server.url
    if "without" in request.param:
        with client(server.port) as redis:
            redis.execute_command("ACL", "SETUSER", "app", "on", ">x", "~*", "&*", "+@all",
                                  "-setrange", "-append")  # fmt: skip
        url = url.replace("//", "//app:x@")
    store = open_store(url, fast_paths=request.param == "fast")
    assert isinstance(store, RedisStore)
    if "in place" in request.param:
        scripts = store.encoder._scripts
        scripts.update({one: taken_for_long(one) for one in scripts})
    with closing(store):
        yield store


def taken_for_long(script: Script) -> Script:
    """The same, for which every record is a long one."""
    changed = Script(script.name)
    changed.source = script.source.replace(b"local LONG = 16384", b"local LONG = 0")
    assert changed.sha != script.sha
    return changed


def test_only_what_is_needed() -> None:
    """A script is put together when it is first used: a short command uses two of ten."""
    code = """
from holdfast.core.commands import Claim, Free
from holdfast.stores.redis.scripts import ALL
from holdfast.stores.registry import open_store

store = open_store("redis://localhost")
store.encoder.command("k", Claim("t", "o", "exclusive", 1_000_000), "-")
store.encoder.command("k", Free("t"), "-")
print([script.name for script in ALL if "source" in vars(script)])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['claim', 'free']"


def test_the_switch(server: RedisServer) -> None:
    """Without fast paths the scripts are others, and nothing of a fast path is in them."""
    assert {script.name for script in ALL if script.without_fast_paths is not script} == {
        "claim", "renew", "free",
    }  # fmt: skip
    for script in (CLAIM, RENEW, FREE):
        assert b"Fast path" in script.source
        assert b"Fast path" not in script.without_fast_paths.source
    with closing(open_store(server.url + "?fast_paths=false")) as store:
        assert isinstance(store, RedisStore)
        assert store.encoder.command("k", Free("t"), "-").script is FREE.without_fast_paths


@pytest.mark.parametrize("family", range(2))
def test_random_runs(either: RedisStore, family: int) -> None:
    """Verdicts and records are the rules', with and without fast paths."""
    seen: set[str] = set()
    for run in range(40):
        draw = random.Random(f"either-{family}-{run}")
        seen |= a_run(Model(either, uuid4().hex), draw, 60, lambda decision: None)
        if seen == EVENTS.keys() and run >= 3:
            return
    assert seen == EVENTS.keys(), "not everything happened: the runs are too tame"


# --- heirs ----------------------------------------------------------------------------------


def comes_or_goes(draw: random.Random, record: Record) -> Command:
    """Somebody wants the lock, mostly alone and with a place that may inherit; or leaves it."""
    if record.holders and draw.random() < 0.5:
        parties: Any = record.queue if draw.random() < 0.1 and record.queue else record.holders
        return Free(draw.choice(parties).token)
    mode: Any = draw.choice(("exclusive",) * 5 + ("shared",))
    patience = draw.choice((LONG, LONG, LONG, 700))
    inherits = mode == "exclusive" and draw.random() < 0.8
    owner = draw.choice(("a", '"},\n', '","lease":1,"bell":"ab"}', "名"))
    return Claim(draw.choice(TOKENS), owner, mode, LONG, None, {}, True, patience, inherits)


def test_heirs(server: RedisServer, either: RedisStore) -> None:
    """Whoever frees a lock grants it to whom the rules name, and tells that one of its grant."""
    heirs = 0
    for run in range(20):
        draw, model = random.Random(f"heirs-{run}"), Model(either, uuid4().hex)
        with listening(server, either, model) as heard:
            for step in range(40):
                command = comes_or_goes(draw, model.record)
                heard.compare(model.apply(command, f"{step:016x}"))
        heirs += heard.heirs
    assert heirs > 20


def test_who_does_not_listen_inherits_nothing(either: RedisStore) -> None:
    """Its client may be dead, and the lock would be taken for its whole ttl."""
    model = Model(either, uuid4().hex)
    for token in TOKENS[:2]:
        model.apply(Claim(token, "o", "exclusive", LONG, None, {}, True, LONG, True), "b")
    model.apply(Free(TOKENS[0]), "c")
    assert model.record.holders == ()


# --- odd records ----------------------------------------------------------------------------


def holder(token: str, now: int, draw: random.Random) -> Holder:
    """Of any mode, alive or dead, with and without a limit, offered or not, from any time."""
    mode: Any = draw.choice(("exclusive", "shared", "counted", "counted"))
    return Holder(
        token, now - draw.randrange(1, 1000), draw.choice(("a", '"},\n', "名")), mode,
        draw.choice(TTLS), draw.choice((0, now - SECOND, now + LONG)),
        draw.choice((0, now - SECOND, now + 500, now + LONG, 4 * now)), f"beat{token[-1]}",
        draw.choice((None, 2, 3, 5)), {}, draw.random() < 0.2,
    )  # fmt: skip


def waiter(token: str, now: int, draw: random.Random) -> Waiter:
    """Of any mode, alive or dead, with and without a limit."""
    mode: Any = draw.choice(("exclusive", "shared", "counted"))
    ends = draw.choice((0, now - SECOND, now + LONG))
    return Waiter(token, "o", mode, LONG, now - SECOND, ends, "b", draw.choice((None, 2, 3)))


def odd_record(now: int, draw: random.Random) -> Record:
    """Anything that fits the format: also holders that exclude each other."""
    tokens = list(TOKENS)
    draw.shuffle(tokens)
    split = draw.randrange(4)
    holders = tuple(holder(token, now, draw) for token in tokens[:split])
    queue = tuple(waiter(token, now, draw) for token in tokens[split : split + draw.randrange(3)])
    fence = draw.choice((1, now - 1, now + LONG, 4 * now))
    return Record(fence, holders, queue, now, draw.choice(("", TOKENS[0])))


def put(model: Model, store: RedisStore, record: Record) -> None:
    """Let this be what is stored."""
    written = store.swap(model.key, model.version, record)
    assert isinstance(written, Swapped)
    model.record, model.version = store.load(model.key).record, written.version


@pytest.mark.parametrize("family", range(2))
def test_odd_records(either: RedisStore, family: int) -> None:
    """Records that only somebody else can have written are judged alike."""
    for run in range(120):
        draw = random.Random(f"odd-{family}-{run}")
        model = Model(either, uuid4().hex)
        now = either.load(model.key).now
        assert now is not None
        put(model, either, odd_record(now.latest, draw))
        a_run(model, draw, 4, lambda decision: None)


@pytest.mark.parametrize("limits", [(None, 5), (5, None), (5, 3), (None,), (3, None, 5)])
def test_limits_that_differ(either: RedisStore, limits: tuple[int | None, ...]) -> None:
    """Whoever claims one of three is told of another limit, if any holder has named one."""
    model = Model(either, uuid4().hex)
    now = either.load(model.key).now
    assert now is not None
    at = now.latest
    holders = tuple(
        Holder(f"t{place}", 1, "o", "counted", LONG, at, at + LONG, "b", limit)
        for place, limit in enumerate(limits)
    )
    put(model, either, Record(1, holders, (), at))
    verdict = model.apply(Claim("mine", "o", "counted", LONG, 3), "b").verdict
    others = [limit for limit in limits if limit not in (None, 3)]
    assert isinstance(verdict, Mismatch) == bool(others)
    if isinstance(verdict, Mismatch):
        assert verdict.limit == others[0]


# --- every fast path is taken ---------------------------------------------------------------


def until_the_rules(script: Script) -> bytes:
    """The script up to where its full rules begin, and there a word of its own."""
    source = script.source.decode()
    return (source[: source.index("-- Reading a record into tables")] + "return 'full'\n").encode()


class Bench:
    """Runs one command on a record, and says whether a fast path was taken."""

    def __init__(self, server: RedisServer, store: RedisStore) -> None:
        self.store, self.key = store, uuid4().hex
        self.names = Names("holdfast")
        self.encoder = Encoder(self.names, LONG, True, b"")
        self._port = server.port

    def takes_it(self, command: Command) -> bool:
        """Whether a fast path does all of this. It is carried out by the whole script, too."""
        call = self.encoder.command(self.key, command, "b")
        count, *rest = call.request_in_full().split(b"\r\n")[6::2]  # after EVAL and its source
        with client(self._port) as redis:
            whole = redis.dump(self.names.record(self.key))
            reply = redis.eval(until_the_rules(call.script).decode(), int(count), *rest)
            redis.delete(self.names.record(self.key))
            if whole is not None:
                redis.restore(self.names.record(self.key), 10**6, whole)
        self.store.apply(self.key, command, "b")
        return bool(reply != b"full")


@pytest.fixture
def bench(server: RedisServer, store: RedisStore) -> Bench:
    """On a lock of its own, which has been used before."""
    made = Bench(server, store)
    assert made.takes_it(claim("first"))
    assert made.takes_it(Free("first"))
    return made


def claim(token: str, queue: bool = False, mode: Any = "exclusive") -> Claim:
    """For a long time."""
    return Claim(token, "o", mode, LONG, None, {}, queue, LONG if queue else 0)


def test_fast_claim(bench: Bench) -> None:
    """A free lock that was used before, for any mode; the fixture has claimed a new one."""
    for mode in ("exclusive", "shared"):
        assert bench.takes_it(claim("a", mode=mode))
        assert not bench.takes_it(claim("a", mode=mode))  # it is held, by itself
        assert bench.takes_it(Free("a"))


@pytest.mark.parametrize("mode", ["exclusive", "shared", "counted"])
def test_a_new_lock_enters_the_index(either: RedisStore, server: RedisServer, mode: Any) -> None:
    """With its name as it is, and with the time at which its record may be gone."""
    key = f"{uuid4().hex}/{{a}}%7B"
    limit = 2 if mode == "counted" else None
    applied = either.apply(key, Claim("t", "o", mode, LONG, limit), "b")
    assert isinstance(applied.verdict, Granted)
    names = Names("holdfast")
    with client(server.port) as redis:
        due = redis.zscore(names.due, coded(key))
        assert redis.zscore(names.index, key) == 0
    tombstone_ms = TOMBSTONE // 1000
    assert due == applied.verdict.holder.acquired_at // 1000 + tombstone_ms + LONG // 1000
    assert either.load(key).record.holders == (applied.verdict.holder,)
    either.apply(key, Free("t"), "b")


def test_fast_renew(bench: Bench) -> None:
    """The only holder, whether it knows its grant or not; not with somebody in the queue."""
    bench.takes_it(claim("a"))
    held = bench.store.load(bench.key).record.holders[0]
    assert bench.takes_it(Renew("a"))
    assert bench.takes_it(Renew("a", held))
    assert not bench.takes_it(Renew("b"))
    bench.takes_it(claim("b", queue=True))
    assert not bench.takes_it(Renew("a"))


def test_fast_join_and_turn(bench: Bench) -> None:
    """Into an empty queue and into one with others; and in when it is the first one's turn."""
    bench.takes_it(claim("a"))
    assert bench.takes_it(claim("b", queue=True))
    assert bench.takes_it(claim("c", queue=True))
    assert not bench.takes_it(claim("c", queue=True))  # it has its place
    assert not bench.takes_it(claim("d", queue=True, mode="shared"))
    assert bench.takes_it(Free("a"))  # an exclusive claim is first
    assert not bench.takes_it(claim("c", queue=True))  # it is not
    assert bench.takes_it(claim("b", queue=True))  # with others behind
    bench.store.apply(bench.key, Free("d"), "b")
    assert bench.takes_it(Free("b"))
    assert bench.takes_it(claim("c", queue=True))  # the last one
    assert bench.takes_it(Free("c"))  # nobody waits


def test_fast_free_leaves_others_to_the_rules(bench: Bench) -> None:
    """Beside another holder, before a shared claim, or by a stranger."""
    bench.takes_it(claim("a", mode="shared"))
    bench.takes_it(claim("b", mode="shared"))
    assert not bench.takes_it(Free("x"))
    assert not bench.takes_it(Free("a"))
    bench.takes_it(claim("writer", queue=True))
    bench.takes_it(Free("b"))
    bench.takes_it(claim("writer", queue=True))
    bench.takes_it(claim("reader", queue=True, mode="shared"))
    assert not bench.takes_it(Free("writer"))


def test_a_record_that_is_not_usual_is_left_to_the_rules(bench: Bench) -> None:
    """A rev or a fence of the future, by a clock that was set back."""
    entry = bench.store.load(bench.key)
    assert entry.now is not None
    ahead = entry.now.latest + 1000 * LONG
    bench.store.swap(bench.key, entry.version, replace(entry.record, fence=ahead))
    assert not bench.takes_it(claim("a"))


def test_no_line_of_lua_is_too_long() -> None:
    """Nor of what is written; loading joins texts that stand on several lines."""
    from holdfast.stores.redis import scripts

    for name, text in scripts._TEXTS.items():
        assert max(map(len, text.splitlines())) <= 100, name
    assert all(b"' ..\n" not in script.source for script in ALL)
