"""A long queue: the rules hold, what changes is written in place, and a claim stays cheap."""

from __future__ import annotations

from uuid import uuid4

import pytest
from msgspec.structs import replace

from holdfast.core.commands import Blocked, Claim, Evict, Free, Freed, Granted, Renew
from holdfast.core.records import SECOND
from holdfast.stores.redis import RedisStore
from tests.engines.redis import RedisServer, client
from tests.helpers import until
from tests.stores.redis.test_rules import OWNERS, Model

MANY = 150  # waiters make a record of more than 16 KiB


def claim(number: int, patience: int = 60 * SECOND) -> Claim:
    """Of the waiter with this number."""
    owner = OWNERS[number % len(OWNERS)]
    return Claim(f"{number:032x}", owner, "exclusive", 60 * SECOND, queue=True, patience=patience)


@pytest.fixture
def crowd(store: RedisStore) -> Model:
    """A lock with a holder, number 0, and many who wait."""
    model = Model(store, uuid4().hex)
    for number in range(MANY + 1):
        store.apply(model.key, claim(number), f"{number:016x}")
    entry = store.load(model.key)
    model.record, model.version = entry.record, entry.version
    return model


def test_places(crowd: Model) -> None:
    """Who waits keeps its place, whether its line stays as long as it was or not; who is new is
    last; who does not queue is told of the first few and of how many more there are."""
    for number in (1, 70, MANY):
        for patience in (60 * SECOND, 61 * SECOND, 7 * SECOND):
            decision = crowd.apply(claim(number, patience), "e" * 16)
            assert isinstance(decision.verdict, Blocked)
            assert decision.verdict.places() == number - 1
    crowd.apply(claim(MANY + 1), "f" * 16)
    assert crowd.record.queue[-1].token == claim(MANY + 1).token
    crowd.apply(replace(claim(MANY + 2), queue=False, patience=0), "0" * 16)
    crowd.apply(replace(claim(MANY + 3), mode="shared"), "0" * 16)


def test_whoever_leaves(crowd: Model) -> None:
    """From the start, the middle and the end of the queue, twice each."""
    for number in (1, 1, 75, 75, MANY, MANY):
        assert isinstance(crowd.apply(Free(claim(number).token), "a" * 16).verdict, Freed)


def test_turns(crowd: Model) -> None:
    """The holder renews and frees, the next one claims, until the record is a short one."""
    for number in range(MANY):
        holder = claim(number).token
        if number % 10 == 0:
            assert isinstance(crowd.apply(Renew(holder), f"{number:016x}").verdict, Granted)
        freed = crowd.apply(Free(holder), "b" * 16)
        assert freed.wake == (claim(number + 1).token,)
        turn = crowd.apply(claim(number + 1), "c" * 16)
        assert isinstance(turn.verdict, Granted)
    assert crowd.record.queue == ()


def test_an_operator(crowd: Model) -> None:
    """Throws the holder out; the queue stays as it was."""
    queue = crowd.record.queue
    crowd.apply(Evict((crowd.record.holders[0].fence,)), "d" * 16)
    assert crowd.record.holders == ()
    assert crowd.record.queue == queue


def test_the_dead_are_swept(store: RedisStore) -> None:
    """Many whose places have run out, between others."""
    model = Model(store, uuid4().hex)
    store.apply(model.key, claim(0), "0" * 16)
    for number in range(1, MANY + 1):
        store.apply(model.key, claim(number, SECOND if number % 3 else 60 * SECOND), "1" * 16)

    def have_run_out() -> bool:
        entry = store.load(model.key)
        assert entry.now is not None
        model.record, model.version = entry.record, entry.version
        short = [waiter.expires_at for waiter in entry.record.queue if waiter.ttl == SECOND]
        return max(short, default=0) < entry.now.earliest  # on a slow machine they may be gone

    until(have_run_out)
    model.apply(claim(MANY + 1), "2" * 16)
    assert len(model.record.queue) == MANY // 3 + 1


def test_it_stays_as_long_as_it_should(server: RedisServer, crowd: Model) -> None:
    """Also a record that was changed in place."""
    name = f"holdfast:{{{crowd.key}}}"
    with client(server.port) as redis:
        redis.pexpire(name, 5000)
        crowd.apply(Renew(claim(0).token), "9" * 16)
        assert redis.pttl(name) > 3600_000


def test_what_a_claim_writes(server: RedisServer, crowd: Model) -> None:
    """A place that is renewed and one that is new are written in place: the server copies nothing
    of the queue."""
    with client(server.port) as redis:
        for number in (70, MANY + 1):
            redis.config_resetstat()
            crowd.apply(claim(number), "8" * 16)
            calls = redis.info("commandstats")
            assert calls["cmdstat_setrange"]["calls"] == 2
            assert "cmdstat_set" not in calls
