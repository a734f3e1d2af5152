"""What an operator reads: the exact lines, their levels, and the fields for machines."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from typing import Any

import pytest

import holdfast
from holdfast import Busy, LeaseLost, Locks, events
from holdfast.core.records import SECOND
from holdfast.observe.log import duration, log_event
from tests.helpers import faulty_locks, memory_locks, unique, until

StoreNews = events.StoreAway | events.StoreBack


def said(caplog: pytest.LogCaptureFixture, *keys: str) -> list[logging.LogRecord]:
    """What was logged of these locks; other tests' clients may still have something to say."""
    return [record for record in caplog.records if record.__dict__.get("lock") in keys]


WAITER = events.Party("bob", "exclusive", None, 1.0)


def holder(owner: str) -> events.Party:
    """Somebody."""
    return events.Party(owner, "exclusive", 7, 1.0)


LINES: list[tuple[events.Event, str, str]] = [
    (events.Acquired("k", "me", 7, "exclusive"), "INFO", "Acquired lock k (owner: me, fence: 7)"),
    (
        events.Acquired("k", "me", 7, "exclusive", 90.0, "taken"),
        "INFO",
        "Took over lock k after 1 min 30 s (owner: me, fence: 7)",
    ),
    (
        events.Released("k", "me", 7, 2.5),
        "INFO",
        "Released lock k after 2.5 s (owner: me, fence: 7)",
    ),
    (
        events.Waiting("k", "me", (holder("ann"),), (), 0, 12.0),
        "DEBUG",
        "Lock k is held by ann (free in 12 s unless renewed)",
    ),
    (
        events.Waiting("k", "me", (holder("ann"), holder("cy")), (WAITER,), 0, None),
        "DEBUG",
        "Lock k is held by ann, cy, with 1 waiting ahead",
    ),
    (
        events.Waiting("k", "me", (), (WAITER, WAITER), 0, 3.0),
        "DEBUG",
        "Lock k is kept for the 2 waiting ahead (free in 3.0 s unless renewed)",
    ),
    (
        events.Waiting("k", "me", (holder("ann"),), (), 72.0, 12.0, long=True),
        "INFO",
        "Waiting for lock k, for 1 min 12 s so far: it is held by ann "
        "(free in 12 s unless renewed)",
    ),
    (
        events.StoreAway("down: redis://u:pw@host/0"),
        "WARNING",
        "The store is away: down: redis://***@host/0",
    ),
    (events.StoreBack(95.0), "INFO", "The store is back after 1 min 35 s"),
    (
        events.StoreBack(95.0, closed=True),
        "INFO",
        "The client was closed while the store was away, for 1 min 35 s",
    ),
    (
        events.StoreTrouble("k", "burnt", "acquire", again=False),
        "DEBUG",
        "Could not acquire lock k: burnt",
    ),
    (
        events.InDanger("k", "me", 7, 4.0),
        "WARNING",
        "Lock k is in danger: it could not be renewed and runs out in 4.0 s (owner: me, fence: 7)",
    ),
    (events.OutOfDanger("k", "me", 7), "INFO", "Lock k is out of danger (owner: me, fence: 7)"),
    (events.Lost("k", "me", 7, "it burnt"), "ERROR", "Lost lock k: it burnt (owner: me, fence: 7)"),
    (
        events.HandedOver("k", "me", 7, 2.5),
        "INFO",
        "Handed over lock k after 2.5 s (owner: me, fence: 7)",
    ),
    (events.Skipped("k", "me", "load"), "INFO", "Skipping load: lock k is taken"),
    (events.Wanted("k", "me", 7, (WAITER,)), "INFO", "Lock k is wanted by bob"),
    (events.Evicted("k", (holder("ann"),)), "WARNING", "Evicted ann from lock k"),
    (events.Evicted("k", ()), "INFO", "Evicted nobody from lock k"),
    (
        events.StoreTrouble("k", "down: redis://u:pw@host/0", "renew"),
        "DEBUG",
        "Could not renew lock k, trying again: down: redis://***@host/0",
    ),
    (
        events.StoreTrouble("k", "down", "release", again=False),
        "INFO",
        "Could not release lock k, its ttl will free it: down",
    ),
    (
        events.StoreTrouble("k", "down", "use a ticket"),
        "DEBUG",
        "Could not use the ticket for lock k, trying again: down",
    ),
    (
        events.StoreTrouble("k", "down", "clean up", again=False),
        "INFO",
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
        "Handed over lock life after N ms (owner: ann, fence: N)",
        "Took over lock life (owner: cy, fence: N)",
        "Joined lock life (owner: cy, fence: N)",
        "Left lock life after N ms (owner: cy, fence: N)",
        "Evicted cy from lock life (by ann)",
        "Lost lock life: it was evicted by ann (owner: cy, fence: N)",
    ]


def test_a_wait_is_told_once_per_holder(caplog: pytest.LogCaptureFixture) -> None:
    """Looking again at the same holder is no news."""
    caplog.set_level(logging.DEBUG, "holdfast")
    with memory_locks(owner="ann") as locks, locks.acquire("wait", ttl=60):
        with pytest.raises(Busy):
            locks.acquire("wait", timeout=0.5, fair=True, ttl=0.3)
    told = [
        record
        for record in said(caplog, "wait")
        if "is held by this very thread, ann" in record.getMessage()
    ]
    assert [record.levelname for record in told] == ["DEBUG"]


def test_a_long_wait_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """However long it lasts; a shorter one is not, nor any if that is switched off."""
    caplog.set_level(logging.INFO, "holdfast")
    url = f"memory://{unique()}"
    with holdfast.connect(url, owner="ann", long_wait=0.2) as locks, locks.acquire("long", ttl=60):
        for fair in (True, False):
            caplog.clear()
            with pytest.raises(Busy):
                locks.acquire("long", timeout=1.5, fair=fair, ttl=0.3)
            (line,) = [record.getMessage() for record in said(caplog, "long")]
            assert line.startswith("Waiting for lock long, for "), line
            assert " so far: it is held by this very thread, ann (free in " in line
        caplog.clear()
        with pytest.raises(Busy):
            locks.wait_until_free("long", timeout=0.5)
        assert len(said(caplog, "long")) == 1
        caplog.clear()
        with holdfast.connect(url, long_wait=None) as quiet:
            for client, timeout in ((quiet, 0.5), (locks, 0.01)):
                with pytest.raises(Busy):
                    client.acquire("long", timeout=timeout)
        assert said(caplog, "long") == []


def test_what_is_in_vain_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """`try_acquire` and a skipped function, each in one line; what raises says so itself."""
    caplog.set_level(logging.INFO, "holdfast")
    with memory_locks(owner="ann") as locks, locks.acquire("vain", ttl=60):
        caplog.clear()
        assert locks.try_acquire("vain") is None
        assert locks.guard("vain", busy="skip")(lambda: 1)() is None
        with pytest.raises(Busy):
            locks.acquire("vain", timeout=0)
        with pytest.raises(Busy):
            locks.acquire("vain", timeout=0.01)
        lines = [(one.levelname, one.getMessage()) for one in said(caplog, "vain")]
    skipping, held = "Skipping ", "Not acquired: 'vain' is held by this very thread, ann."
    assert lines[0] == ("INFO", held)
    assert (lines[1][0], lines[1][1].startswith(skipping), len(lines)) == ("INFO", True, 2)


QUIET = """
import holdfast
with holdfast.connect("memory://q") as locks:
    with locks.acquire("k") as lease:
        assert locks.try_acquire("k") is None
        assert locks.guard("k", busy="skip")(lambda: 1)() is None
        try:
            locks.acquire("k", timeout=0.05)
        except holdfast.AcquireTimeout:
            pass
        locks.take(lease.hand_over()).release()
    locks.acquire("k")
"""


def test_ordinary_work_prints_nothing() -> None:
    """In a program that has not set up logging, although Python prints warnings there."""
    ran = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_an_absence_of_the_store_is_told_twice(caplog: pytest.LogCaptureFixture) -> None:
    """When it goes away and when it is back, not for every try and key; stragglers are no news."""
    caplog.set_level(logging.INFO, "holdfast")
    told: list[events.Event] = []
    with faulty_locks(ttl=60, on_event=told.append) as (locks, store):
        leases = [locks.acquire(f"away{number}") for number in range(3)]
        caplog.clear()
        locks._client.observations.keys_are_new = False  # so that the next one is looked at
        store.plan("refuse", "refuse", "refuse", "refuse")
        locks.acquire("away3", timeout=30).release()  # is tried again until it works
        store.plan("refuse", "refuse")
        locks.acquire("away4", timeout=30).release()
        for lease in leases:
            lease.release()
    about_store = [one for one in caplog.records if "The store is" in one.getMessage()]
    assert [one.levelname for one in about_store] == ["WARNING", "INFO"]
    assert about_store[0].getMessage() == "The store is away: Refused on purpose: load."
    assert about_store[1].getMessage().startswith("The store is back after ")
    assert [type(one).__name__ for one in told if isinstance(one, StoreNews)] == [
        "StoreAway", "StoreBack",
    ]  # fmt: skip
    assert {one.levelname for one in caplog.records} == {"WARNING", "INFO"}


def test_renewals_tell_of_it_too(caplog: pytest.LogCaptureFixture) -> None:
    """A client that only keeps its leases alive notices the same."""
    caplog.set_level(logging.INFO, "holdfast")
    with faulty_locks(ttl=5) as (locks, store), locks.acquire("kept") as lease:
        store.plan("refuse", "refuse")
        until(lambda: "The store is back" in caplog.text)
        assert lease.held
    about_store = [one.levelname for one in caplog.records if "The store is" in one.getMessage()]
    assert about_store == ["WARNING", "INFO"]


def test_acquire_all_that_fails_says_what_it_gave_back(caplog: pytest.LogCaptureFixture) -> None:
    """Every lock that was logged as acquired is logged as given back."""
    caplog.set_level(logging.INFO, "holdfast")
    with memory_locks(owner="ann") as locks, locks.acquire("all2"):
        caplog.clear()
        with pytest.raises(Busy):
            locks.acquire_all(["all1", "all2"], timeout=0, owner="bob")
    lines = [record.getMessage() for record in said(caplog, "all1", "all2")]
    assert [line.split(" (")[0].split(" after")[0] for line in lines[:2]] == [
        "Acquired lock all1",
        "Gave back lock all1",
    ]


def test_trouble_and_danger(caplog: pytest.LogCaptureFixture) -> None:
    """That the store is away and danger are warnings, the loss is an error."""
    caplog.set_level(logging.INFO, "holdfast")
    with faulty_locks(owner="ann", ttl=0.4) as (locks, store):
        lease = locks.acquire("bad")
        store.plan(then="refuse")
        assert lease.lost.wait(10)
        until(lambda: any(record.levelname == "ERROR" for record in said(caplog, "bad")))
    records = said(caplog, "bad")
    assert not any("Could not renew" in record.getMessage() for record in records)
    assert len([one for one in caplog.messages if one.startswith("The store is away")]) == 1
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
    caplog.set_level(logging.INFO, "holdfast")
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
