"""How often the poller looks at a key on behalf of calls that wait, and whom it notifies."""

from __future__ import annotations

import threading
import time
from typing import Any
from uuid import uuid4

import pytest

from holdfast.core.contract import Entry, exactly
from holdfast.core.records import Holder, Record, Waiter
from holdfast.stores.waiting import local_poller, local_wakeups
from holdfast.stores.waiting.handles import PollResult, WaitHandle, poll_result
from holdfast.stores.waiting.local_poller import Intervals, LocalPoller, _Schedule, tokens_ahead
from holdfast.stores.waiting.local_wakeups import open_socket
from holdfast.stores.waiting.notices import inherited_by
from tests.helpers import until


def handle(token: str = "t", key: str = "k", notify: Any = bool) -> WaitHandle:
    """A call that waits."""
    return WaitHandle(key, 1, token, notify)


def queue_of(*tokens: str) -> Record:
    """A record with a holder and these waiters."""
    holder = Holder("h", 1, "you", "exclusive", 1, 0, 1, "b")
    return Record(1, (holder,), tuple(Waiter(t, "w", "exclusive", 1, 0, 1, "b") for t in tokens))


def seen(*tokens: str) -> PollResult:
    """What a poll shows of that."""
    return poll_result(Entry(queue_of(*tokens), 1, exactly(1)), "turn")


class Looker:
    """Counts how often it is asked."""

    def __init__(self, result: PollResult) -> None:
        self.result = result
        self.looks = 0

    def look(self, keys: Any) -> dict[str, PollResult]:
        self.looks += 1
        return dict.fromkeys(keys, self.result)

    def pause(self) -> None:
        """There is nothing open."""

    def close(self) -> None:
        """There is nothing open."""


@pytest.mark.parametrize(
    ("waiting", "ahead"), [("a", ""), ("c", "ab"), ("cb", "a"), ("x", ""), ("cx", ""), ("", "")]
)
def test_who_is_ahead(waiting: str, ahead: str) -> None:
    """Of the first of these calls; whoever has no place may be let in by any release."""
    handles = [handle(token) for token in waiting]
    assert "".join(tokens_ahead(handles, seen(*"abc"))) == ahead
    assert tokens_ahead(handles, None) == ()


def test_those_further_back_are_polled_for_more_rarely() -> None:
    """Of two processes that wait as long, the one at the head looks far more often."""
    looks = []
    for token in "az":
        looker = Looker(seen(*"abcdefghijklmnopqrstuvwxyz"))
        poller = LocalPoller(looker)
        one = handle(token)
        poller.add(one)
        time.sleep(0.6)
        poller.discard(one)
        poller.close()
        looks.append(looker.looks)
    assert looks[0] > 2 * looks[1]
    assert looks[1] >= 1


@pytest.mark.parametrize(("token", "looks"), [("a", 2), ("z", 1)])
def test_who_was_behind_is_not_polled_for_at_once_again(token: str, looks: int) -> None:
    """Its next wait begins at the end of the queue, mostly. The first in the queue is."""
    looker = Looker(seen(*"abcdefghijklmnopqrstuvwxyz"))
    poller = LocalPoller(looker, Intervals(0, 600, 600, 600))
    one, again = handle(token), handle(token)
    poller.add(one)
    until(lambda: bool(poller._schedules) and poller._schedules["k"].interval > 0)
    poller.discard(one)
    poller.add(again)
    until(lambda: not poller._new and looker.looks >= looks)
    poller.close()
    assert looker.looks == looks


def test_who_was_behind_leaves_the_thread_alone_and_is_polled_for_in_time() -> None:
    """The thread wakes up by itself when the next look is due, whoever waits by then."""
    looker = Looker(seen(*"az"))
    poller = LocalPoller(looker, Intervals(0, 0.1, 0.1, 0.1))
    one, again = handle("z"), handle("z")
    poller.add(one)
    until(lambda: bool(poller._schedules) and poller._schedules["k"].behind)
    poller.discard(one)
    assert poller._inbox is not None
    looks, rung = looker.looks, list[None]()
    poller._inbox.interrupt = lambda: rung.append(None)  # type: ignore[method-assign]
    poller._schedules["k"].at = time.monotonic() + 0.5
    poller.add(again)
    until(lambda: looker.looks > looks)
    del poller._inbox.interrupt
    poller.close()
    assert rung == []


def test_a_closed_poller_keeps_nobody_waiting() -> None:
    """Whoever comes afterwards is notified at once."""
    poller, notified = LocalPoller(Looker(seen("t"))), threading.Event()
    poller.close()
    poller.add(handle(notify=notified.set))
    assert notified.is_set()


def test_an_inbox_is_closed_with_the_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that waits no more has no descriptor open for it."""
    monkeypatch.setattr(local_poller, "LINGER_S", 0.05)
    before = {id(inbox) for inbox in local_wakeups._inboxes if not inbox._epoll.closed}
    poller, one = LocalPoller(Looker(seen("t"))), handle()
    poller.add(one)
    poller.discard(one)
    until(lambda: poller._inbox is None)
    after = {id(inbox) for inbox in local_wakeups._inboxes if not inbox._epoll.closed}
    assert after <= before


def test_who_waits_in_the_same_process_is_told_at_once() -> None:
    """Without a socket in between."""
    heir = Holder("one", 7, "me", "exclusive", 30, 1000, 1030, "beat")
    granted = Record(9, (heir,), updated_at=1000)
    poller, told = LocalPoller(Looker(seen())), threading.Event()
    one = handle("one", notify=told.set)
    poller.handles.add(one)
    poller.notify("k", ("one",), granted)
    assert told.is_set()
    assert one.found == inherited_by(granted, "one") is not None
    poller.close()


# --- those behind others, where no wake-up arrives --------------------------------------------

SQL = Intervals(first_s=0.004, fastest_s=0.005, slowest_s=1.0, a_place_s=0.25, slowing=1.1)


class Crowd:
    """Processes that want one lock, each on a machine of its own, in virtual time. Who has waited
    for longest gets it at the first look after it is free."""

    hold_s, trip_s = 0.001, 0.002

    def __init__(self, size: int) -> None:
        self.now, self.free_at, self.looks = 0.0, 0.0, 0
        self.got: list[float] = []
        self.queue = [_Schedule(0.0, SQL) for _ in range(size)]

    def run(self, until_s: float) -> None:
        """Let each look when it is due."""
        while self.now < until_s:
            schedule = min(self.queue, key=lambda one: one.at)
            self.now = max(self.now, schedule.at)
            self._look(schedule)

    def _look(self, schedule: _Schedule) -> None:
        self.looks += 1
        ahead = self.queue.index(schedule)
        if ahead == 0 and self.now >= self.free_at:
            self.got.append(self.now)
            self.free_at = self.now + self.trip_s + self.hold_s
            self.queue.append(self.queue.pop(0))  # and wants it again
            schedule.looked(self.now, None, ())
            schedule.at = self.free_at + self.trip_s
            return
        schedule.looked(self.now, PollResult(turn=len(self.got)), [f"{n}" for n in range(ahead)])

    def per_second(self, since_s: float) -> float:
        """How many locks a second there were in the time after that."""
        return sum(at >= since_s for at in self.got) / (self.now - since_s)


@pytest.mark.parametrize("size", [2, 8, 50])
def test_a_crowd_of_many_machines_is_served_in_order(size: int) -> None:
    """Nobody is woken, and yet nearly everybody learns in time that it is the first."""
    crowd = Crowd(size)
    crowd.run(20.0)
    assert crowd.per_second(10.0) > 60  # it was 4 where each place cost 0.25 s
    assert crowd.looks / len(crowd.got) < 30


def test_one_that_comes_late_does_not_slow_the_others_down() -> None:
    """After it has had the lock for three seconds they are as fast as before."""
    crowd = Crowd(8)
    crowd.run(10.0)
    before = crowd.per_second(8.0)
    crowd.free_at = crowd.now + 3.0
    crowd.run(crowd.free_at + 1.0)
    since = crowd.now
    crowd.run(since + 2.0)
    assert crowd.per_second(since) > 0.8 * before


def test_whoever_is_woken_by_the_one_ahead_looks_rarely() -> None:
    """It waits on the same machine: a place is worth a quarter of a second there."""
    intervals, here = {}, uuid4().hex
    opened = open_socket(here)
    assert opened is not None
    with opened:
        for just_ahead in (here, "elsewhere"):
            schedule = _Schedule(0.0, SQL)
            schedule.looked(0.0, None, ["a", "b", just_ahead])
            intervals[just_ahead] = schedule.interval
    assert intervals[here] == 1.0
    assert intervals["elsewhere"] < 0.1


def test_a_long_wait_is_polled_for_rarely_on_any_machine() -> None:
    """A queue that does not move costs what it did."""
    schedule, looks = _Schedule(0.0, SQL), 0
    while schedule.at < 600:
        schedule.looked(schedule.at, None, ["a", "b", "c"])
        looks += 1
    assert schedule.interval == 1.0
    assert looks < 650
