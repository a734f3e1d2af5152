"""What an operator reads: the exact lines, their levels, and the fields for machines."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from holdfast import Busy, LeaseLost, Locks
from holdfast.core import events
from holdfast.core.records import SECOND, Holder, Waiter
from holdfast.observe.log import duration, log_event
from tests.helpers import faulty_locks, memory_locks, until


def said(caplog: pytest.LogCaptureFixture, *keys: str) -> list[logging.LogRecord]:
    """What was logged of these locks; other tests' clients may still have something to say."""
    return [record for record in caplog.records if record.__dict__.get("lock") in keys]


WAITER = Waiter("", "bob", "exclusive", SECOND, 1, 1, "")


def holder(owner: str) -> Holder:
    """Somebody."""
    return Holder("", 7, owner, "exclusive", SECOND, 1, 1, "")


LINES: list[tuple[events.Event, str, str]] = [
    (events.Acquired("k", "me", 7, "exclusive"), "INFO", "Acquired lock k (owner: me, fence: 7)"),
    (
        events.Acquired("k", "me", 7, "exclusive", 90 * SECOND, "Took over"),
        "INFO",
        "Took over lock k after 1 min 30 s (owner: me, fence: 7)",
    ),
    (
        events.Released("k", "me", 7, 2_500_000),
        "INFO",
        "Released lock k after 2.5 s (owner: me, fence: 7)",
    ),
    (
        events.Waiting("k", "me", (holder("ann"),), (), 0, 12 * SECOND),
        "WARNING",
        "Lock k is held by ann for another 12 s",
    ),
    (
        events.Waiting("k", "me", (holder("ann"), holder("cy")), (WAITER,), 0, None),
        "WARNING",
        "Lock k is held by ann, cy, with 1 waiting ahead",
    ),
    (
        events.Waiting("k", "me", (), (WAITER, WAITER), 0, 3 * SECOND),
        "WARNING",
        "Lock k is kept for the 2 waiting ahead for another 3.0 s",
    ),
    (
        events.InDanger("k", "me", 7, 4 * SECOND),
        "WARNING",
        "Lock k is in danger: it could not be renewed and runs out in 4.0 s (owner: me, fence: 7)",
    ),
    (events.OutOfDanger("k", "me", 7), "INFO", "Lock k is out of danger (owner: me, fence: 7)"),
    (events.Lost("k", "me", 7, "it burnt"), "ERROR", "Lost lock k: it burnt (owner: me, fence: 7)"),
    (events.Wanted("k", "me", 7, (WAITER,)), "INFO", "Lock k is wanted by bob"),
    (events.Evicted("k", (holder("ann"),)), "WARNING", "Evicted ann from lock k"),
    (events.Evicted("k", ()), "INFO", "Evicted nobody from lock k"),
    (
        events.StoreTrouble("k", "down: redis://u:pw@host/0", "renew"),
        "WARNING",
        "Could not renew lock k, trying again: down: redis://***@host/0",
    ),
    (
        events.StoreTrouble("k", "down", "release", again=False),
        "WARNING",
        "Could not release lock k, its ttl will free it: down",
    ),
    (
        events.StoreTrouble("k", "down", "use a ticket"),
        "WARNING",
        "Could not use the ticket for lock k, trying again: down",
    ),
    (
        events.StoreTrouble("k", "down", "clean up", again=False),
        "WARNING",
        "Could not clean up behind lock k, its ttl will free it: down",
    ),
]


@pytest.mark.parametrize(("event", "level", "line"), LINES)
def test_lines(
    event: events.Event, level: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every event has its line at its level."""
    caplog.set_level(logging.DEBUG, "holdfast")
    log_event(event)
    ours = [(name, number, text) for name, number, text in caplog.record_tuples if text == line]
    assert ours == [("holdfast", getattr(logging, level), line)]


def test_fields(caplog: pytest.LogCaptureFixture) -> None:
    """The details are there for machines, under names that are the record's own."""
    caplog.set_level(logging.INFO, "holdfast")
    with memory_locks(owner="me") as locks, locks.acquire("fields", mode="shared") as lease:
        pass
    acquired, released = said(caplog, "fields")
    for record in (acquired, released):
        has: Any = record
        assert (has.lock, has.lock_owner, has.lock_fence) == ("fields", "me", lease.fence)
    assert (acquired.__dict__["holdfast_event"], acquired.__dict__["lock_mode"]) == (
        "Acquired", "shared",
    )  # fmt: skip
    assert released.__dict__["holdfast_event"] == "Released"


def test_a_life_in_lines(caplog: pytest.LogCaptureFixture) -> None:
    """What a log looks like, from the first acquire to the loss."""
    caplog.set_level(logging.INFO, "holdfast")
    with memory_locks(owner="ann") as locks:
        lease = locks.acquire("life")
        with pytest.raises(Busy):
            locks.acquire("life", timeout=0, owner="bob")
        second = locks.take(lease.hand_over(), owner="cy")
        third = locks.join(second.share())
        third.release()
        locks.evict("life")
        assert second.release() is False
    lines = [record.getMessage() for record in said(caplog, "life")]
    lines = [re.sub(r"fence: \d{10,}", "fence: N", line) for line in lines]
    lines = [re.sub(r"\d+ ms", "N ms", line) for line in lines]
    assert lines == [
        "Acquired lock life (owner: ann, fence: N)",
        "Lock life is held by ann for another 30 s",
        "Handed over lock life after N ms (owner: ann, fence: N)",
        "Took over lock life (owner: cy, fence: N)",
        "Joined lock life (owner: cy, fence: N)",
        "Left lock life after N ms (owner: cy, fence: N)",
        "Evicted cy from lock life",
        "Lost lock life: it was gone when it was to be released: evicted, released elsewhere or "
        "expired (owner: cy, fence: N)",
    ]


def test_a_wait_is_told_once_per_holder(caplog: pytest.LogCaptureFixture) -> None:
    """Looking again at the same holder is no news."""
    with memory_locks(owner="ann") as locks, locks.acquire("wait", ttl=60):
        with pytest.raises(Busy):
            locks.acquire("wait", timeout=0.5, fair=True, ttl=0.3)
    assert len(said(caplog, "wait")) == 1


def test_acquire_all_that_fails_says_what_it_gave_back(caplog: pytest.LogCaptureFixture) -> None:
    """Every lock that was logged as acquired is logged as given back."""
    caplog.set_level(logging.INFO, "holdfast")
    with memory_locks(owner="ann") as locks, locks.acquire("all2"):
        caplog.clear()
        with pytest.raises(Busy):
            locks.acquire_all(["all1", "all2"], timeout=0, owner="bob")
    lines = [record.getMessage() for record in said(caplog, "all1", "all2")]
    assert [line.split(" (")[0].split(" after")[0] for line in lines[:3]] == [
        "Acquired lock all1",
        "Lock all2 is held by ann for another 30 s",
        "Gave back lock all1",
    ]


def test_trouble_and_danger(caplog: pytest.LogCaptureFixture) -> None:
    """Beats that fail are warnings, the loss is an error."""
    caplog.set_level(logging.INFO, "holdfast")
    with faulty_locks(owner="ann", ttl=0.4) as (locks, store):
        lease = locks.acquire("bad")
        store.plan(then="refuse")
        assert lease.lost.wait(10)
        until(lambda: any(record.levelname == "ERROR" for record in said(caplog, "bad")))
    records = said(caplog, "bad")
    assert {r.levelname for r in records if "Could not renew" in r.getMessage()} == {"WARNING"}
    assert any("is in danger" in record.getMessage() for record in records)
    (lost,) = [record.getMessage() for record in records if record.levelname == "ERROR"]
    assert lost.startswith("Lost lock bad: it could not be renewed in time (owner: ann")


def test_no_key_forges_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """What others wrote stays within its line."""
    caplog.set_level(logging.INFO, "holdfast")
    with memory_locks(owner="ann\nERROR all is lost") as locks, locks.acquire("k\x1b[2J\n"):
        pass
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith("Acquired lock k\\x1b[2J\\n (owner: ann\\nERROR all is lost, ")
    assert all(line.isprintable() for line in lines)


def test_nor_does_one_that_is_skipped_or_whose_callback_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The same where the line is not made from an event."""
    key = "k\nERROR all is lost"
    with memory_locks() as locks:
        lease = locks.acquire(key)
        assert locks.guard("{name}", busy="skip")(lambda name: 1)(key) is None
        lease.on_lost(lambda _: 1 / 0)
        locks.evict(key)
        with pytest.raises(LeaseLost):
            lease.renew()
        until(lambda: any("callback" in line for line in caplog.messages))
    assert any("Skipping" in line for line in caplog.messages)
    assert all("\n" not in line for line in caplog.messages)


def test_nothing_is_formatted_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the log switched off, no line is made."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    try:
        with memory_locks() as locks, locks.acquire("k"):
            assert locks.try_acquire("k") is None
    finally:
        logging.getLogger("holdfast").setLevel(logging.NOTSET)


def test_a_listener_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A mistake in `on_event` is logged with its traceback, and the lease goes on."""

    def listener(event: object) -> None:
        raise ZeroDivisionError

    with memory_locks(on_event=listener) as locks, locks.acquire("k") as lease:
        assert lease.held
    assert any(record.exc_info for record in caplog.records)


def test_a_listener_may_use_the_locks() -> None:
    """`on_event` may come back to the client, whatever it is told, and from any thread."""
    told: list[str] = []
    clients: list[Locks] = []

    def listener(event: events.Event) -> None:
        told.append(type(event).__name__)
        if event.key == "k":
            with clients[0].acquire("log"):
                clients[0].show("k")

    with memory_locks(on_event=listener, ttl=0.3) as locks:
        clients.append(locks)
        lease = locks.acquire("k")
        del lease  # dropped: the keeper tells
        until(lambda: "Lost" in told)
        with locks.acquire("k", timeout=10):
            pass


@pytest.mark.parametrize(
    ("span", "text"),
    [(0, "0 ms"), (999_000, "999 ms"), (SECOND, "1.0 s"), (9_940_000, "9.9 s"),
     (10 * SECOND, "10 s"), (59 * SECOND, "59 s"), (60 * SECOND, "1 min 0 s"),
     (3600 * SECOND, "1 h 0 min"),
     (90_061 * SECOND, "25 h 1 min"), (999_900, "1.0 s"), (9_990_000, "10 s")],
)  # fmt: skip
def test_durations(span: int, text: str) -> None:
    """Spans of time in words."""
    assert duration(span) == text
