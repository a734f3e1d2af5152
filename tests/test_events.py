"""Events as an interface: what is told of an attempt and a lease, in which order, and to whom."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import holdfast
from holdfast import AcquireTimeout, Busy, LeaseLost, Locks, Unavailable, aio, events
from holdfast.observe import sinks as sinks_module
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore
from tests.helpers import faulty_locks, memory_locks, until

Told = list[Any]


def names(told: Told, key: str = "k") -> list[str]:
    """What was told of one lock, without what may come at any time."""
    often = events.Renewed | events.StoreTrouble
    return [type(one).__name__ for one in told if one.key == key and not isinstance(one, often)]


def test_every_event_is_documented_field_by_field() -> None:
    """All events are public, and each docstring names the fields that explain themselves least."""
    public = {getattr(events, name) for name in events.__all__}
    assert set(get_args(events.Event)) <= public
    plain = {"key", "owner", "fence", "attempt", "mode"}
    page = (Path(__file__).parent.parent / "docs" / "events.md").read_text()
    for event in get_args(events.Event):
        assert f"`{event.__name__}`" in page, event
        for field in set(event.__struct_fields__) - plain:
            assert f"`{field}`" in page, (event, field)
        documented = inspect.getdoc(event) or ""
        shared = {"held_for"} if event is events.HandedOver else set()
        for field in set(event.__struct_fields__) - plain - shared:
            assert field in documented, (event, field)


def test_a_life_has_one_number() -> None:
    """From the start of the attempt to the end of its lease, all events carry the same attempt."""
    told: Told = []
    with memory_locks(on_event=told.append) as locks:
        with locks.acquire("k") as lease:
            lease.renew()
        second = locks.acquire("k")
        locks.take(second.hand_over()).release()
    assert names(told) == [
        "Started", "Acquired", "Released",
        "Started", "Acquired", "HandedOver",
        "Started", "Acquired", "Released",
    ]  # fmt: skip
    assert [type(one) for one in told].count(events.Renewed) == 1
    numbers = [one.attempt for one in told]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 3
    assert told[-2].how == "taken"


def test_times_are_seconds() -> None:
    """What an event says of time can be compared with that of the rest of the API."""
    told: Told = []
    with memory_locks(on_event=told.append) as locks, locks.acquire("k", owner="ann", ttl=60):
        began = time.time()
        with pytest.raises(AcquireTimeout):
            locks.acquire("k", timeout=0.2)
    (waiting, *_) = [one for one in told if isinstance(one, events.Waiting)]
    (gave_up,) = [one for one in told if isinstance(one, events.GaveUp)]
    (released,) = [one for one in told if isinstance(one, events.Released)]
    assert 50 < (waiting.frees_in or 0) <= 61
    assert abs(waiting.holders[0].since - began) < 60
    assert (waiting.holders[0].owner, waiting.attempt) == ("ann", gave_up.attempt)
    assert 0.2 <= gave_up.waited <= released.held_for < 60


@pytest.mark.parametrize(
    ("timeout", "why", "error"), [(0, "busy", "Busy"), (0.1, "timeout", "AcquireTimeout")]
)
def test_giving_up_says_why(timeout: float, why: str, error: str) -> None:
    """An attempt that did not wait, and one that waited in vain."""
    told: Told = []
    with memory_locks(on_event=told.append) as locks, locks.acquire("k"):
        told.clear()
        with pytest.raises(Busy) as raised:
            locks.acquire("k", timeout=timeout)
    (gave_up,) = [one for one in told if isinstance(one, events.GaveUp)]
    assert (gave_up.why, gave_up.error) == (why, error)
    assert raised.value.attempt == gave_up.attempt


def test_giving_up_because_of_an_error() -> None:
    """A store that cannot be used ends an attempt, too."""
    told: Told = []
    with faulty_locks(on_event=told.append, store_patience=0) as (locks, store):
        store.plan(then="refuse")
        with pytest.raises(Unavailable):
            locks.acquire("k")
    (gave_up,) = [one for one in told if isinstance(one, events.GaveUp)]
    assert (gave_up.why, gave_up.error) == ("error", "Unavailable")


def test_a_cancelled_attempt_says_so() -> None:
    """A task that is cancelled while it waits ends its attempt."""
    told: Told = []

    async def main() -> None:
        async with aio.connect("memory://", on_event=told.append) as locks:
            async with locks.acquire("k"):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await locks.acquire("k")

    asyncio.run(main())
    (gave_up,) = [one for one in told if isinstance(one, events.GaveUp)]
    assert gave_up.why == "cancelled"


def test_a_skipped_function_is_told_after_its_attempt() -> None:
    """`Skipped` names the function, and the attempt that found the lock taken."""
    told: Told = []
    with memory_locks(on_event=told.append) as locks, locks.acquire("k"):

        @locks.guard("k", busy="skip", owner="night")
        def load() -> None: ...

        load()
    (gave_up,) = [one for one in told if isinstance(one, events.GaveUp)]
    skipped = told[told.index(gave_up) + 1]
    assert isinstance(skipped, events.Skipped)
    assert skipped.attempt == gave_up.attempt > 0
    assert (skipped.owner, skipped.function.split(".")[-1]) == ("night", "load")


def test_all_or_none_tells_of_each() -> None:
    """Every key of an acquire_all has an attempt of its own, and each of them ends."""
    told: Told = []
    with memory_locks(on_event=told.append) as locks, locks.acquire("b"):
        with pytest.raises(Busy):
            locks.acquire_all(["a", "b"], timeout=0)
        with locks.acquire_all(["c", "d"]):
            pass
    assert names(told, "a") == ["Started", "Acquired", "Released"]
    assert names(told, "b")[2:5] == ["Started", "Waiting", "GaveUp"]
    assert names(told, "c") == names(told, "d") == ["Started", "Acquired", "Released"]
    assert all(one.attempt for one in told)


def test_a_lost_lease_says_how_long_it_was_held() -> None:
    """`Lost` has the attempt of its lease, and its time."""
    told: Told = []
    with memory_locks(on_event=told.append) as locks:
        lease = locks.acquire("k")
        locks.evict("k")
        with pytest.raises(LeaseLost):
            lease.renew()
    (lost,) = [one for one in told if isinstance(one, events.Lost)]
    (acquired,) = [one for one in told if isinstance(one, events.Acquired)]
    assert lost.attempt == acquired.attempt
    assert 0 < lost.held_for < 60


# --- sinks ----------------------------------------------------------------------------------


def test_a_slow_sink_delays_nobody() -> None:
    """Neither a call nor the keeper waits for a sink that hangs."""
    hangs, told = threading.Event(), threading.Event()

    def slow(event: events.Event) -> None:
        told.set()
        hangs.wait(60)

    try:
        with memory_locks(sinks=[slow], ttl=5) as locks:
            began = time.monotonic()
            for _ in range(100):
                locks.acquire("k").release()
            assert told.wait(10)
            assert time.monotonic() - began < 30
    finally:
        hangs.set()


def test_a_sink_is_called_in_order_in_one_thread() -> None:
    """Events come as they happened, and close() waits until the last has come."""
    told: Told = []
    threads: set[int] = set()

    def sink(event: events.Event) -> None:
        told.append(event)
        threads.add(threading.get_ident())

    with memory_locks(sinks=[sink]) as locks:
        for _ in range(50):
            locks.acquire("k").release()
    assert names(told) == ["Started", "Acquired", "Released"] * 50
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_an_inline_sink_is_called_at_once() -> None:
    """A sink that asks for it is called in the thread in which the event happens."""

    class Inline:
        inline = True

        def __init__(self) -> None:
            self.threads: list[int] = []

        def __call__(self, event: events.Event) -> None:
            self.threads.append(threading.get_ident())

    sink = Inline()
    with memory_locks(sinks=[sink]) as locks:
        locks.acquire("k")
        assert set(sink.threads) == {threading.get_ident()}


@pytest.mark.parametrize("inline", [True, False])
def test_a_sink_that_raises_is_told_to_the_others(
    inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its failures are counted by others, and harm nothing."""
    told: Told = []

    class Broken:
        def __init__(self) -> None:
            self.inline = inline

        def __call__(self, event: events.Event) -> None:
            raise ZeroDivisionError

    with memory_locks(sinks=[Broken(), told.append]) as locks, locks.acquire("k") as lease:
        assert lease.held
    until(lambda: len([one for one in told if isinstance(one, events.SinkTrouble)]) == 3)
    assert {(one.sink, one.fault) for one in told if isinstance(one, events.SinkTrouble)} == {
        ("test_a_sink_that_raises_is_told_to_the_others.<locals>.Broken", "raised")
    }
    assert any(record.exc_info for record in caplog.records)


def test_events_are_dropped_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that hangs costs a bounded amount of memory, and that is told once."""
    monkeypatch.setattr(sinks_module, "MOST_WAITING", 10)
    called, hangs = threading.Event(), threading.Event()
    told: Told = []

    def slow(event: events.Event) -> None:
        called.set()
        hangs.wait(60)

    class Quick:
        inline = True

        def __call__(self, event: events.Event) -> None:
            told.append(event)

    try:
        with memory_locks(sinks=[slow, Quick()]) as locks:
            locks.acquire("k").release()
            assert called.wait(60)
            for _ in range(30):
                locks.acquire("k").release()
            troubles = [one for one in told if isinstance(one, events.SinkTrouble)]
            hangs.set()
    finally:
        hangs.set()
    assert [(one.fault, "slow" in one.sink) for one in troubles] == [("dropped", True)]


def test_a_slow_sink_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that takes long is told to the other sinks."""
    monkeypatch.setattr(sinks_module, "SLOW_S", 0.01)
    told: Told = []

    def slow(event: events.Event) -> None:
        time.sleep(0.05)

    with memory_locks(sinks=[slow], on_event=told.append) as locks:
        locks.acquire("k").release()
        until(lambda: any(isinstance(one, events.SinkTrouble) for one in told))
    assert {one.fault for one in told if isinstance(one, events.SinkTrouble)} == {"slow"}


def test_requests_are_told_to_those_who_ask() -> None:
    """A sink with `requests` learns how long each request to the store took, and what failed."""

    class Requests:
        inline = requests = True

        def __init__(self) -> None:
            self.told: Told = []

        def __call__(self, event: events.Event) -> None:
            if isinstance(event, events.StoreAnswered):
                self.told.append(event)

    sink = Requests()
    with faulty_locks(sinks=[sink], store_patience=0) as (locks, store):
        locks.acquire("k").release()
        list(locks.list())
        store.plan(then="refuse")
        with pytest.raises(Unavailable):
            locks.acquire("k")
    assert {one.asked for one in sink.told} == {"load", "swap", "scan"}
    assert all(0 <= one.took < 60 for one in sink.told)
    assert {one.error for one in sink.told} == {"", "Unavailable"}


def test_nobody_is_told_of_requests_otherwise() -> None:
    """Without such a sink there is no such event."""
    told: Told = []
    with memory_locks(on_event=told.append) as locks:
        locks.acquire("k").release()
    assert not [one for one in told if isinstance(one, events.StoreAnswered)]


def test_the_asyncio_face_tells_the_same() -> None:
    """The events of both faces are alike."""

    async def main(told: Told) -> None:
        async with aio.connect("memory://", sinks=[told.append]) as locks:
            async with locks.acquire("k") as lease:
                await lease.renew()
            assert await locks.try_acquire("k") is not None

    told: Told = []
    asyncio.run(main(told))
    assert names(told) == ["Started", "Acquired", "Released", "Started", "Acquired", "Released"]


def test_a_forked_child_tells_its_own_events(tmp_path: Path) -> None:
    """A sink's thread is started anew in the child."""
    import multiprocessing

    context = multiprocessing.get_context("fork")
    told: Told = []
    url = f"sqlite:///{tmp_path / 'locks.db'}"
    with holdfast.connect(url, sinks=[told.append]) as locks:
        locks.acquire("k").release()
        child = context.Process(target=_in_child, args=(url, told.append, tmp_path / "told"))
        child.start()
        child.join(60)
    assert (tmp_path / "told").read_text() == "Started Acquired Released"


def _in_child(url: str, sink: Callable[[Any], None], path: Path) -> None:
    told: Told = []
    with holdfast.connect(url, sinks=[told.append, sink]) as locks:
        locks.acquire("c").release()
    path.write_text(" ".join(names(told, "c")))


def failing_client(told: Told) -> tuple[Locks, FaultyStore]:
    """A client that does not wait for its store, and the store."""
    store = FaultyStore(MemoryStore())
    return Locks(store, store_patience=0, request_timeout=0.2, on_event=told.append), store


@pytest.mark.parametrize("how", ["release", "block", "hand over", "close"])
def test_a_lease_that_cannot_be_given_back_ends_too(how: str) -> None:
    """A store that is away does not hide the end of a lease from gauges and spans."""
    told: Told = []
    locks, store = failing_client(told)
    lease = locks.acquire("k")
    store.plan(then="refuse")
    if how == "block":
        with lease:
            pass
    elif how != "close":
        with pytest.raises(Unavailable):
            (lease.release if how == "release" else lease.hand_over)()
    locks.close()
    assert names(told)[:3] == ["Started", "Acquired", "Released"]
    (ended,) = [one for one in told if isinstance(one, events.Released)]
    assert (ended.how, ended.attempt) == ("abandoned", told[0].attempt)


def test_a_failed_acquire_is_trouble_of_the_store() -> None:
    """Also for a client that does not try again; and when that is closed, nobody is away."""
    told: Told = []
    locks, store = failing_client(told)
    store.plan(then="refuse")
    with pytest.raises(Unavailable):
        locks.acquire("k")
    locks.close()
    (trouble,) = [one for one in told if isinstance(one, events.StoreTrouble)]
    assert (trouble.doing, trouble.again) == ("acquire", False)
    assert [type(one).__name__ for one in told if not one.key] == ["StoreAway", "StoreBack"]
    assert [one.closed for one in told if isinstance(one, events.StoreBack)] == [True]


def test_closing_an_asyncio_client_ends_an_absence_too() -> None:
    """When there is nothing to wait for, as well."""
    told: Told = []

    async def main() -> None:
        store = FaultyStore(MemoryStore())
        async with aio.Locks(store, store_patience=0, on_event=told.append) as locks:
            store.plan(then="refuse")
            with pytest.raises(Unavailable):
                await locks.acquire("k")

    asyncio.run(main())
    assert [one.closed for one in told if isinstance(one, events.StoreBack)] == [True]


def test_a_contended_key_is_asked_for_by_amend() -> None:
    """Requests that hold a record still are told of like all others."""
    told: list[events.StoreAnswered] = []

    def note(event: events.Event) -> None:
        if isinstance(event, events.StoreAnswered):
            told.append(event)

    note.requests = note.inline = True  # type: ignore[attr-defined]
    with memory_locks(sinks=[note], pass_on=False) as locks, locks.acquire("k"):
        with pytest.raises(AcquireTimeout):
            locks.acquire("k", timeout=0.05)
    assert "amend" in {one.asked for one in told}
