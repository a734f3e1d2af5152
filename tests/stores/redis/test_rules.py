"""The scripts against the pure rules: the same commands, every answer and every state."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from holdfast.core import rules
from holdfast.core.commands import (
    ANYONE,
    NOBODY,
    Blocked,
    Claim,
    Command,
    Decision,
    Evict,
    Evicted,
    Free,
    Freed,
    Granted,
    Mismatch,
    NotHeld,
    Offer,
    Renew,
    Stamp,
    Take,
    Wake,
)
from holdfast.core.contract import Inherited, Swapped
from holdfast.core.records import EMPTY, SECOND, Holder, Record, Waiter, droppable_at
from holdfast.stores.base import Store
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.record_text import WAKE, mark
from holdfast.stores.registry import open_store
from holdfast.stores.waiting.notices import read_notice
from tests.engines.redis import RedisCluster, RedisServer, ValkeyServer, client
from tests.engines.shared import shared

OWNERS = ("a", 'quo"te', "line\nbreak", '],"queue":[\n', "名前 🔒", "back\\slash", '","note":{')
NOTES: tuple[dict[str, Any], ...] = (
    {},
    {"x": [1], "queue": [2]},
    {"holders": [], "deep": {"a": [{"b": None}]}, "text": 'q"\n'},
    {"big": 2**60, "small": -1.5e-7},
)
TTLS = (700, 3_000, 10_000, 60 * SECOND)
TOKENS = tuple(f"{n:032x}" for n in range(5))
TICKETS = tuple(f"{n:032x}" for n in range(100, 103))
MODES: tuple[tuple[Any, int | None], ...] = (
    ("exclusive", None),
    ("exclusive", None),
    ("shared", None),
    ("shared", None),
    ("counted", 2),
    ("counted", 3),
)


def some_claim(draw: random.Random) -> Claim:
    """A claim, by anybody, of any kind."""
    mode, limit = draw.choice(MODES)
    queue = draw.random() < 0.5
    return Claim(
        draw.choice(TOKENS), draw.choice(OWNERS), mode, draw.choice(TTLS), limit,
        draw.choice(NOTES), queue, draw.choice(TTLS) if queue else 0,
        queue and mode == "exclusive" and draw.random() < 0.7,
    )  # fmt: skip


def some_renew(draw: random.Random, record: Record) -> Renew:
    """A renewal, by somebody who may know the grant as it was some beats ago."""
    token = draw.choice(TOKENS + TICKETS)
    held = rules.find(record.holders, token)
    if held is None or (throw := draw.random()) < 0.3:
        return Renew(token)
    if throw < 0.5:
        more = random.Random(throw)  # so that the runs stay as they are
        fence = more.choice((held.fence, held.fence + 1, held.fence - 1))
        lease = replace(held, fence=fence, owner=more.choice(OWNERS), note=more.choice(NOTES))
        return Renew(token, more.choice((None, held)), lease)
    return Renew(token, replace(held, expires_at=held.acquired_at, beat="before"))


def some_take(draw: random.Random) -> Take:
    """A take, with a new note or the old one."""
    note = draw.choice((None, *NOTES))
    owner, ttl = draw.choice(OWNERS), draw.choice(TTLS)
    return Take(draw.choice(TICKETS), draw.choice(TOKENS), owner, ttl, note)


KINDS: tuple[Callable[[random.Random, Record], Command], ...] = (
    lambda draw, record: some_claim(draw),
    lambda draw, record: some_claim(draw),
    some_renew,
    lambda draw, record: Free(draw.choice(TOKENS + TICKETS)),
    lambda draw, record: Offer(draw.choice(TOKENS), draw.choice(TICKETS), draw.choice(TTLS)),
    lambda draw, record: some_take(draw),
    lambda draw, record: Evict(some_fences(draw, record)),
    lambda draw, record: Evict(some_fences(draw, record), waiters=some_waiters(draw, record)),
)


def some_fences(draw: random.Random, record: Record) -> tuple[int, ...]:
    """The fences of some holders and of nobody, or none."""
    fences = (1, record.fence + 1, *(holder.fence for holder in record.holders))
    return tuple(draw.sample(fences, draw.randint(0, len(fences))))


def some_waiters(draw: random.Random, record: Record) -> tuple[str, ...]:
    """The tokens of some who wait and of nobody, or none."""
    tokens = ("nobody", *(waiter.token for waiter in record.queue))
    return tuple(draw.sample(tokens, draw.randint(0, len(tokens))))


# What every family of runs must have seen at least once.
EVENTS: dict[str, Callable[[Command, Decision], bool]] = {
    "granted": lambda c, d: isinstance(c, Claim) and d.record is not None and _is(d, Granted),
    "granted before": lambda c, d: isinstance(c, Claim) and d.record is None and _is(d, Granted),
    "granted beside": lambda c, d: isinstance(c, Claim) and len(_holders(d)) > 1,
    "blocked": lambda c, d: _is(d, Blocked) and d.record is None,
    "queued": lambda c, d: _is(d, Blocked) and d.record is not None and len(d.record.queue) > 1,
    "mismatch": lambda c, d: _is(d, Mismatch),
    "renewed": lambda c, d: isinstance(c, Renew) and _is(d, Granted),
    "not held": lambda c, d: _is(d, NotHeld),
    "freed": lambda c, d: _is(d, Freed) and d.record is not None,
    "freed before": lambda c, d: _is(d, Freed) and d.record is None,
    "some woken": lambda c, d: d.wake not in (NOBODY, ("*",)),
    "offered": lambda c, d: isinstance(c, Offer) and d.record is not None,
    "taken": lambda c, d: isinstance(c, Take) and d.record is not None,
    "waiters evicted": lambda c, d: (
        isinstance(c, Evict) and d.record is not None and d.verdict == Evicted(())
    ),
    "evicted": lambda c, d: isinstance(d.verdict, Evicted) and d.verdict.holders != (),
}


def _is(decision: Decision, kind: type) -> bool:
    return isinstance(decision.verdict, kind)


def _holders(decision: Decision) -> tuple[Any, ...]:
    return () if decision.record is None else decision.record.holders


class Model:
    """The rules on a record of their own, beside a store."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self.key = key
        self.is_heard = False  # somebody listens on the channel of the store's client
        self.record = EMPTY
        self.version: Any = None

    def apply(self, command: Command, beat: str) -> Decision:
        """Apply a command to both, and compare the verdict and what is stored."""
        applied = self._store.apply(self.key, command, beat)
        assert applied.now is not None
        now = applied.now.latest
        assert applied.now.earliest == now
        decision = rules.decide(
            self._naming_heir(command),
            self.record,
            lambda party: bool(party.expires_at) and now > party.expires_at,
            Stamp(now, beat),
        )
        assert applied.verdict == decision.verdict, command
        entry = self._store.load(self.key)
        assert entry.fault is None
        expected = decision.record or self.record
        assert entry.record == expected, command
        if decision.record is None:
            assert applied.version == self.version
        else:
            assert applied.version > (self.version or 0)
        assert entry.version == applied.version
        self.record, self.version = entry.record, entry.version
        return decision

    def _naming_heir(self, command: Command) -> Command:
        """The scripts name the first in the queue, if its client listens."""
        if not isinstance(command, Free) or not self.is_heard or not self.record.queue:
            return command
        first, *others = self.record.queue
        leaves = first.token == command.token and others
        return Free(command.token, others[0].token if leaves else first.token)


def a_run(model: Model, draw: random.Random, steps: int, after: Callable[..., None]) -> set[str]:
    """A random run; what was seen in it."""
    seen: set[str] = set()
    last: tuple[Command, str] | None = None
    for step in range(steps):
        if last is None or draw.random() > 0.15:  # else: it arrives a second time
            last = draw.choice(KINDS)(draw, model.record), f"{step:016x}"
        decision = model.apply(*last)
        after(decision)
        seen |= {name for name, happened in EVENTS.items() if happened(last[0], decision)}
    return seen


SITES: dict[str, type[Any]] = {
    "single": RedisServer, "cluster": RedisCluster, "valkey": ValkeyServer,
}  # fmt: skip


@pytest.fixture(params=SITES)
def place(request: pytest.FixtureRequest) -> Iterator[RedisStore]:
    """A store with an index, and one without; and somebody else's Redis."""
    store = open_store(shared(SITES[request.param]).url)
    assert isinstance(store, RedisStore)
    with closing(store):
        yield store


@pytest.mark.parametrize("family", range(3))
def test_scripts_answer_as_the_rules_do(place: RedisStore, family: int) -> None:
    """On random runs the scripts give the rules' verdicts and leave the rules' records."""
    seen: set[str] = set()
    for run in range(300):  # on a busy machine most of what could happen has run out before it does
        draw = random.Random(f"{family}-{run}")
        seen |= a_run(Model(place, uuid4().hex), draw, 60, lambda decision: None)
        if seen == EVENTS.keys() and run >= 5:
            return
    assert seen == EVENTS.keys(), "not everything happened: the runs are too tame"


@contextmanager
def listening(server: RedisServer, store: RedisStore, model: Model) -> Iterator[Heard]:
    """Whom the store wakes from now on."""
    with client(server.port) as redis, redis.pubsub() as pubsub:
        channels = store.names.channels(model.key)
        pubsub.subscribe(*channels)
        for _ in channels:
            assert pubsub.get_message(timeout=5)["type"] == "subscribe"
        heard = Heard(pubsub, model)
        model.is_heard = True
        yield heard
        assert pubsub.get_message(timeout=0.05) is None


def called(token: str) -> str:
    """How a waiter is named where anybody may listen."""
    return mark(token).decode()


class Heard(list[Wake]):
    """Whom a store has woken."""

    def __init__(self, pubsub: Any, model: Model) -> None:
        super().__init__()
        self._pubsub, self._model = pubsub, model
        self.heirs = 0

    def compare(self, decision: Decision) -> None:
        """The store told those whom the rules wake, queued ones by their client's channel."""
        if decision.wake != NOBODY:
            message = self._pubsub.get_message(timeout=5)
            assert message is not None
            rev, *whom = message["data"].decode().split(" ")
            assert int(rev) == self._model.version
            named = decision.wake if decision.wake == ANYONE else map(called, decision.wake)
            count = len(decision.wake)
            assert tuple(whom[:count]) == tuple(named)
            self._compare_notice(decision, " ".join(whom[count:]))
            assert message["channel"].endswith(WAKE) == (decision.wake == ANYONE)
            self.append(decision.wake)

    def _compare_notice(self, decision: Decision, notice: str) -> None:
        """The heir was told what the rules have written for it, and nobody else anything."""
        record = self._model.record
        heir = rules.find(record.holders, decision.wake[0])
        if heir is None:
            assert notice == ""
            return
        assert read_notice(notice.encode(), heir.token.encode()) == Inherited(
            heir.beat, heir.fence, record.fence, heir.acquired_at, heir.expires_at,
            bool(record.queue),
        )  # fmt: skip
        assert heir.token not in notice
        self.heirs += 1


def test_scripts_wake_whom_the_rules_wake(server: RedisServer, store: RedisStore) -> None:
    """A script publishes if and only if the rules say so, with the tokens that may go."""
    model = Model(store, uuid4().hex)
    with listening(server, store, model) as heard:
        for run in range(4):
            a_run(model, random.Random(f"wake-{run}"), 100, heard.compare)
    assert len(heard) > 20


def test_scripts_wake_nobody_in_vain(server: RedisServer, store: RedisStore) -> None:
    """A reader that leaves wakes the writer at the head of the queue only if it was the last."""
    model = Model(store, uuid4().hex)
    with listening(server, store, model) as heard:
        for token, mode in (("a", "shared"), ("b", "shared"), ("writer", "exclusive")):
            claim = Claim(token, "o", mode, 60 * SECOND, None, {}, True, 60 * SECOND)  # type: ignore[arg-type]
            model.apply(claim, "b")
        for token, wake in (("a", NOBODY), ("b", ("writer",))):
            decision = model.apply(Free(token), "c")
            assert decision.wake == wake
            heard.compare(decision)


def test_each_client_is_told_of_its_own(server: RedisServer, store: RedisStore) -> None:
    """A release tells queued waiters on the channels of their clients; one whose place names no
    client, because it was written by a swap, on the channel of all. Nobody hears a token, but from
    a client of 0.1.0, which has a shorter channel and knows nothing else."""
    key = uuid4().hex
    with closing(open_store(server.url)) as other, client(server.port) as redis:
        assert isinstance(other, RedisStore)
        other.encoder._client_channel = other.names.client_channel = b"0123456789ab"
        claim = Claim("writer", "o", "exclusive", 60 * SECOND)
        assert isinstance(store.apply(key, claim, "b").verdict, Granted)
        queued = replace(claim, mode="shared", queue=True, patience=60 * SECOND)
        store.apply(key, replace(queued, token="swapped"), "b")
        entry = store.load(key)
        store.swap(key, entry.version, entry.record)
        for place, token in ((store, "a"), (other, "b"), (store, "c")):
            place.apply(key, replace(queued, token=token), "b")
        mine, anyone = store.names.channels(key)
        theirs, _ = other.names.channels(key)
        with redis.pubsub() as pubsub:
            pubsub.subscribe(mine, theirs, anyone)
            freed = store.apply(key, Free("writer"), "-")
            told: dict[bytes, str] = {}
            while len(told) < 3:
                message = pubsub.get_message(ignore_subscribe_messages=True, timeout=5)
                if message is not None:
                    told[message["channel"]] = message["data"].decode()
    rev = freed.version
    named = f"{rev} {called('a')} {called('c')}"
    assert told == {mine: named, theirs: f"{rev} b", anyone: f"{rev} *"}


def test_one_waiter_is_told_by_its_clients_channel(server: RedisServer, store: RedisStore) -> None:
    """The same on the fast path, for both kinds of clients."""
    with client(server.port) as redis, redis.pubsub() as pubsub:
        for channel, name in ((b"0123456789ab", "b"), (b"0123456789abcd", called("b"))):
            key = uuid4().hex
            store.encoder._client_channel = store.names.client_channel = channel
            claim = Claim("a", "o", "exclusive", 60 * SECOND)
            store.apply(key, claim, "-")
            store.apply(key, replace(claim, token="b", queue=True, patience=60 * SECOND), "-")
            pubsub.subscribe(store.names.channels(key)[0])
            assert pubsub.get_message(timeout=5)["type"] == "subscribe"
            freed = store.apply(key, Free("a"), "-")
            assert pubsub.get_message(timeout=5)["data"].decode() == f"{freed.version} {name}"


@pytest.mark.parametrize("live", ["waiting", "none"])
def test_scripts_pass_over_the_dead(server: RedisServer, store: RedisStore, live: str) -> None:
    """Whoever is dead is neither woken nor in the way of those who are."""
    model, short = Model(store, uuid4().hex), 20_000

    def claim(token: str, mode: Any, ttl: int) -> Claim:
        return Claim(token, "o", mode, ttl, None, {}, True, ttl)

    with listening(server, store, model) as heard:
        for token, ttl in (("dead-reader", short), ("reader", 60 * SECOND)):
            model.apply(claim(token, "shared", ttl), "b")
        model.apply(claim("dead-writer", "exclusive", short), "b")
        if live == "waiting":
            for token in ("writer", "next"):
                model.apply(claim(token, "exclusive", 60 * SECOND), "b")
        time.sleep(2 * short / SECOND)
        heard.compare(model.apply(Free("next"), "b"))
        heard.compare(model.apply(Free("reader"), "b"))
    assert heard == ([("writer",)] if live == "waiting" else [ANYONE])


def test_scripts_bear_places_without_a_limit(store: RedisStore) -> None:
    """Counted places that somebody else wrote and that name no limit are in nobody's way."""
    model = Model(store, uuid4().hex)
    model.apply(Claim("mine", "o", "exclusive", 60 * SECOND), "b")
    later = 4 * model.record.updated_at
    queue = tuple(Waiter(token, "o", "counted", 1, 1, later, "b") for token in "ab")
    model.record = replace(model.record, queue=queue)
    written = store.swap(model.key, model.version, model.record)
    assert isinstance(written, Swapped)
    model.version = written.version
    assert model.apply(Free("mine"), "b").verdict == Freed()


def test_record_stays_until_it_is_history(server: RedisServer, store: RedisStore) -> None:
    """A record's key expires when the last party is over and its tombstone's time has passed."""
    key = uuid4().hex
    model = Model(store, key)
    with client(server.port) as redis:

        def compare(decision: Decision) -> None:
            if decision.record is not None:
                left_ms = redis.pttl(store.names.record(key))
                meant = droppable_at(replace(decision.record, queue=()))
                meant_ms = (meant - decision.record.updated_at) / 1000
                assert meant_ms - 2000 < left_ms <= meant_ms + 1

        a_run(model, random.Random("expiry"), 100, compare)


def test_clock_behind_the_record(store: RedisStore) -> None:
    """With a record from the future, by a clock that was set back, fences and revs still grow."""
    model, ahead = Model(store, uuid4().hex), 8 * 10**15
    swapped = store.swap(model.key, None, Record(fence=ahead, updated_at=ahead))
    assert isinstance(swapped, Swapped)
    model.record, model.version = store.load(model.key).record, swapped.version
    for turn in range(3):
        for command in (Claim("t", "o", "exclusive", SECOND), Renew("t"), Free("t")):
            model.apply(command, f"{turn}")
    assert model.record.fence == ahead + 3


def test_clock_behind_the_grant(store: RedisStore) -> None:
    """A grant from the future, by a clock that was set back, is not remembered to have ended before
    it began: as by the rules."""
    ahead, ttl = 8 * 10**15, 60 * SECOND
    offered = Holder("k", 7, "o", "exclusive", ttl, ahead, ahead + ttl, "b", offered=True)
    for command in (Evict((7,), "ops", "why"), Take("k", "t", "p", ttl)):
        model = Model(store, uuid4().hex)
        swapped = store.swap(model.key, None, Record(7, (offered,), updated_at=1))
        assert isinstance(swapped, Swapped)
        model.record, model.version = store.load(model.key).record, swapped.version
        decided = model.apply(command, "c").record
        assert decided is not None
        assert model.record.history == decided.history
        assert [(one.since, one.at) for one in decided.history or ()] == [(ahead, ahead)]


def test_long_queues(store: RedisStore) -> None:
    """With more waiters than are told of, verdicts and records are still the rules'."""
    model, draw = Model(store, uuid4().hex), random.Random("long")
    tokens = [f"{number:032x}" for number in range(60)]

    def claim(mode: Any, ttl: int = 60 * SECOND) -> Claim:
        return Claim(draw.choice(tokens), draw.choice(OWNERS), mode, ttl, None, {}, True, ttl)

    model.apply(Claim("first", "o", "exclusive", 60 * SECOND), "b")
    for step in range(150):
        mode = draw.choice(("exclusive", "shared", "shared"))
        model.apply(claim(mode, draw.choice((60 * SECOND, 60 * SECOND, 40_000))), f"{step:x}")
    assert len(model.record.queue) > 30
    for step in range(120):
        holders = [holder.token for holder in model.record.holders]
        command = draw.choice((
            Renew(draw.choice(holders) if holders else "x"),
            Free(draw.choice([*holders, draw.choice(tokens)])),
            claim("shared"),
            Claim(draw.choice(tokens), "o", "shared", 60 * SECOND),
        ))  # fmt: skip
        model.apply(command, f"again{step:x}")
