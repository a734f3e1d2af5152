"""Who is rung when a lock may be free: not in vain, and of a crowd not everybody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from holdfast.core.commands import ANYONE, NOBODY, Wake
from holdfast.core.contract import Entry, exactly
from holdfast.core.records import EMPTY, Holder, Record
from holdfast.errors import Unavailable
from holdfast.stores.waiting import herd as crowds
from holdfast.stores.waiting.handles import WaitHandle, WaitHandles, lets_in, poll_result
from holdfast.stores.waiting.herd import HerdDamper
from holdfast.stores.waiting.poller import Poller
from tests.helpers import until


def handle(token: str = "t", version: int | None = 1, key: str = "k") -> WaitHandle:
    """One who does nothing when it is rung."""
    return WaitHandle(key, version, token, lambda: None)


def entry(version: int, mode: str = "") -> Entry:
    """A record with or without a holder."""
    holder = Holder("h", 1, "you", mode, 1, 0, 1, "b") if mode else None  # type: ignore[arg-type]
    record = Record(1, (holder,)) if holder else EMPTY
    return Entry(record, version, exactly(1))


# --- whether a look lets somebody in --------------------------------------------------------


def test_a_look_rings_for_what_is_new() -> None:
    """First for any other version, then only for a write that may let somebody in."""
    one = handle()
    assert not lets_in(one, poll_result(entry(1), "a"))
    assert not lets_in(one, poll_result(entry(2), "a"))  # a renewal
    assert lets_in(one, poll_result(entry(3), "b"))
    assert lets_in(handle(), poll_result(entry(2), "a"))
    assert lets_in(handle(), None)
    assert not lets_in(handle(version=None), None)


def test_a_look_shows_what_it_saw() -> None:
    """So that whoever is rung need not look again."""
    one, free = handle(), entry(2)
    assert not lets_in(one, poll_result(entry(1), "a"))
    assert one.found is None  # it is not rung
    assert lets_in(one, poll_result(free, "b"))
    assert one.found is free


def test_nobody_comes_for_what_is_taken_again() -> None:
    """Only the next release rings; readers may sit beside each other."""
    one = handle()
    assert not lets_in(one, poll_result(entry(2, "exclusive"), "a"))
    assert not lets_in(one, poll_result(entry(3, "exclusive"), "b"))
    assert not lets_in(one, poll_result(entry(4), "b"))
    assert lets_in(one, poll_result(entry(5), "c"))
    assert lets_in(handle(), poll_result(entry(2, "shared"), "a"))


@pytest.mark.parametrize(
    ("whom", "notified"),
    [(NOBODY, ""), (ANYONE, "ab"), (("a",), "a"), (("c",), "")],
)
def test_a_write_rings_whom_it_names(whom: Wake, notified: str) -> None:
    """Those in line by their tokens, or everybody who sleeps for the key."""
    waits, heard = WaitHandles(), set[str]()
    for token, key in (("a", "k"), ("b", "k"), ("a", "other")):
        name = token if key == "k" else key
        waits.add(WaitHandle(key, 1, token, partial(heard.add, name)))
    waits.notify("k", whom)
    assert heard == set(notified)


# --- a crowd --------------------------------------------------------------------------------


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Says what chance will say from now on, from 0 to 1."""

    def set_to(value: float) -> None:
        monkeypatch.setattr("holdfast.stores.waiting.herd.random.random", lambda: value)

    return set_to


def lose(crowd: HerdDamper, times: int, *tokens: str) -> None:
    """Be rung and come too late."""
    for _ in range(times):
        handles = [handle(token) for token in tokens or ("t",)]
        assert crowd.answering("k", handles, 0.0) == handles
        for one in handles:
            crowd.cancelled(one)
            crowd.registered(handle(one.token))


def answers(crowd: HerdDamper, token: str = "t", now: float = 0.0) -> bool:
    """Whether one who sleeps alone in this process comes."""
    return bool(crowd.answering("k", [handle(token)], now))


def test_who_waits_alone_always_answers(draws: Callable[[float], None]) -> None:
    """However unlikely: there was no race yet."""
    draws(1.0)
    crowd = HerdDamper()
    assert all(answers(crowd, f"t{number}") for number in range(20))


def test_who_loses_races_answers_more_rarely(draws: Callable[[float], None]) -> None:
    """One ring in as many as take part, as it seems; and a win brings it back."""
    crowd = HerdDamper()
    draws(0.0)
    lose(crowd, 3)
    draws(0.5)
    assert not answers(crowd)
    draws(0.1)
    assert all(answers(crowd, f"winner{number}") for number in range(20))
    draws(1.0)
    assert answers(crowd, "last")


def test_a_process_with_many_waiters_counts_all_that_lose(draws: Callable[[float], None]) -> None:
    """One ring for several of them is one race, and nobody has won it who comes back."""
    crowd = HerdDamper()
    draws(0.0)
    lose(crowd, 1, "a", "b", "c")
    draws(0.3)
    assert not answers(crowd)  # four or more take part


def test_a_ring_that_was_passed_over_is_made_up_for(draws: Callable[[float], None]) -> None:
    """Everybody may have passed it over."""
    crowd, late = HerdDamper(), handle()
    draws(0.0)
    lose(crowd, 5)
    draws(1.0)
    assert crowd.next_at() is None
    assert crowd.answering("k", [late], 0.0) == []
    due = crowd.next_at()
    assert due is not None
    assert 0 < due <= crowds.MAKE_UP_S
    assert crowd.overdue(due / 2) == []
    assert crowd.overdue(due) == [late]
    assert crowd.overdue(due) == []


def test_who_woke_otherwise_has_nothing_made_up_for(draws: Callable[[float], None]) -> None:
    """It timed out, or looked by itself."""
    crowd, gone = HerdDamper(), handle()
    draws(0.0)
    lose(crowd, 5)
    draws(1.0)
    assert crowd.answering("k", [gone], 0.0) == []
    crowd.cancelled(gone)
    assert crowd.next_at() is None


def test_what_was_learnt_is_forgotten(draws: Callable[[float], None]) -> None:
    """After a while without a ring nobody knows how many there are."""
    crowd = HerdDamper()
    draws(0.0)
    lose(crowd, 5)
    draws(1.0)
    assert not answers(crowd, now=crowds.GOOD_FOR_S)
    assert answers(crowd, now=3 * crowds.GOOD_FOR_S)


# --- looking for those who sleep --------------------------------------------------------------


def test_a_store_in_trouble_is_not_looked_at_more_often() -> None:
    """Whoever sleeps is let look for themselves; and the next look comes later, not sooner."""
    looks: list[float] = []

    def turns(keys: object) -> dict[str, object]:
        looks.append(time.monotonic())
        raise Unavailable

    poller = Poller(turns, lets_in, longest_s=0.5)
    ends_at = time.monotonic() + 2
    while time.monotonic() < ends_at:
        notified = threading.Event()
        one = WaitHandle("k", 1, "t", notified.set)
        poller.add(one)
        assert notified.wait(5)
        poller.discard(one)
    poller.close()
    assert 2 < len(looks) < 40


def test_a_look_that_fails_in_an_unknown_way() -> None:
    """Whoever sleeps is let look for themselves; and the next look comes all the same."""
    looks: list[float] = []

    def turns(keys: object) -> dict[str, object]:
        looks.append(time.monotonic())
        raise OSError(24, "Too many open files")

    poller = Poller(turns, lets_in, longest_s=0.05)
    for _ in range(3):
        notified = threading.Event()
        one = WaitHandle("k", 1, "t", notified.set)
        poller.add(one)
        assert notified.wait(5)
        poller.discard(one)
    poller.close()
    assert len(looks) >= 3


class End(BaseException):
    """What ends a thread whatever it does."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_poller_whose_thread_ended() -> None:
    """The next one who sleeps starts another."""
    looks: list[float] = []

    def turns(keys: object) -> dict[str, object]:
        looks.append(time.monotonic())
        if len(looks) == 1:
            raise End
        return {}

    poller = Poller(turns, lets_in, longest_s=0.05)
    first, second = handle(), handle()
    poller.add(first)
    until(lambda: looks and not poller._running)
    poller.add(second)
    until(lambda: len(looks) >= 2)
    poller.close()
