"""Who evicted whom and why, and the last few things that happened to a key."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from holdfast import BadOption, LeaseLost, events
from holdfast.cli.render import happenings
from holdfast.core import rules
from holdfast.core.commands import Claim, Evict, Stamp
from holdfast.core.records import EMPTY, REMEMBERED, Record, decode, encode
from holdfast.testing import HandClock
from tests.helpers import memory_locks, until


def test_a_plain_life_leaves_no_trace() -> None:
    """What is acquired, renewed and released costs no byte more than before."""
    with memory_locks() as locks:
        with locks.acquire("k") as lease:
            lease.renew()
        assert locks.show("k").history == ()
    record = rules.decide(
        Claim("t", "me", "exclusive", 1), EMPTY, rules.nobody, Stamp(1, "b")
    ).record
    assert record is not None
    assert b"history" not in encode(record)


def test_the_history_is_bounded() -> None:
    """Only the last few things are remembered, in their order, and they survive the text."""
    record: Record = EMPTY
    for number in range(20):
        claimed = rules.decide(
            Claim("t", f"o{number}", "exclusive", 1), record, rules.nobody, Stamp(number, "b")
        ).record
        assert claimed is not None
        evicted = rules.decide(
            Evict((claimed.fence,), "ops", "why"), claimed, rules.nobody, Stamp(number, "b")
        ).record
        assert evicted is not None
        record = decode(encode(evicted))
    assert [one.owner for one in record.history or ()] == [
        f"o{n}" for n in range(20 - REMEMBERED, 20)
    ]


def test_a_holder_that_ran_out_is_remembered() -> None:
    """Whoever comes next leaves a note of the one who died."""
    with memory_locks() as locks:
        lease = locks.acquire("k", ttl=0.2, keep=False, owner="ann")
        with locks.acquire("k", owner="bob", timeout=20):
            (past,) = locks.show("k").history
        assert (past.what, past.owner, past.fence) == ("expired", "ann", lease.fence)
        assert past.since < past.at


def test_a_holder_that_ran_out_is_seen_before_somebody_comes() -> None:
    """No write is needed for it, and it is not told twice when somebody has come."""
    with HandClock() as clock, memory_locks() as locks:
        lease = locks.acquire("k", ttl=60, keep=False, owner="ann")
        clock.advance(120)
        for _ in range(2):
            (past,) = locks.show("k").history
            assert (past.what, past.owner, past.fence) == ("expired", "ann", lease.fence)
            locks.acquire("k", owner="bob").release()


def test_show_tells_what_happened_in_order() -> None:
    """With the beginnings of the grants: acquired, ran out, acquired, evicted, acquired."""
    with HandClock() as clock, memory_locks() as locks:
        locks.acquire("k", ttl=60, keep=False, owner="ann")
        clock.advance(120)
        locks.acquire("k", ttl=60, keep=False, owner="bob")
        clock.advance(1)
        locks.evict("k", operator="ops", reason="it hung")
        clock.advance(1)
        kept = locks.acquire("k", owner="cy")
        told = [what for _, what, _ in happenings(locks.show("k"))]
        kept.release()
    assert told == [
        "ann acquired it", "ann ran out", "bob acquired it", "bob was evicted by ops: it hung",
        "cy acquired it",
    ]  # fmt: skip


def test_the_victim_is_told_at_every_call(caplog: pytest.LogCaptureFixture) -> None:
    """Renewal, release, check and the log say who did it and why."""
    told: list[Any] = []
    caplog.set_level(logging.INFO, "holdfast")
    with memory_locks(on_event=told.append) as locks:
        first, second = locks.acquire("a"), locks.acquire("b")
        for key in "ab":
            locks.evict(key, operator="ops", reason="it hung")
        with pytest.raises(LeaseLost, match="evicted by ops: it hung"):
            first.renew()
        with pytest.raises(LeaseLost, match="evicted by ops: it hung"):
            first.check()
        assert second.release() is False
        with pytest.raises(LeaseLost, match="evicted by ops: it hung"):
            second.check()
    assert [one.why for one in told if isinstance(one, events.Lost)] == [
        "it was evicted by ops: it hung"
    ] * 2
    evicted = next(one for one in told if isinstance(one, events.Evicted))
    assert (evicted.operator, evicted.reason) == ("ops", "it hung")
    assert any("(by ops): it hung" in line for line in caplog.messages)


def test_the_keeper_tells_it_too() -> None:
    """Also whoever only waits for its `lost` event."""
    with memory_locks(ttl=0.6) as locks:
        lease = locks.acquire("k")
        locks.evict("k", reason="it hung", operator="ops")
        until(lambda: lease.hold.state == "lost")
        with pytest.raises(LeaseLost, match="evicted by ops: it hung"):
            lease.check()


def test_the_operator_is_the_client_by_default() -> None:
    """Without a name, it is the owner of the client that evicts."""
    with memory_locks(owner="console") as locks:
        lease = locks.acquire("k")
        locks.evict("k")
        with pytest.raises(LeaseLost, match="it was evicted by console"):
            lease.renew()


@pytest.mark.parametrize("bad", [{"reason": 5}, {"reason": "x" * 10_000}, {"operator": ""}])
def test_what_cannot_be_written_is_refused(bad: dict[str, Any]) -> None:
    """A reason is short text, and an operator has a name."""
    with memory_locks() as locks, pytest.raises(BadOption):
        locks.evict("k", **bad)
