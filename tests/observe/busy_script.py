"""A scripted run in which every metric gets a value, with waits and holds of a known length."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import AcquireTimeout, Busy, LeaseLost, Locks, Unavailable, aio, events
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore
from holdfast.testing.hand_clock import HandClock

# What one round does.
ACQUIRED, TIMED_OUT, SKIPPED, LOST = 14, 2, 3, 2
HELD, WAITING, IN_DANGER = 2, 1, 1  # at its end
HOUR = 3600.0


def broken(event: events.Event) -> None:
    """A sink that fails at one kind of event."""
    if isinstance(event, events.Skipped):
        raise ValueError("a sink that fails")


broken.inline = True  # type: ignore[attr-defined]


class Seen:
    """A sink that remembers everything."""

    inline = requests = True

    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def __call__(self, event: events.Event) -> None:
        self.events.append(event)

    def until(self, kind: type, owner: str) -> None:
        """Wait until somebody was told of."""
        _until(
            lambda: any(
                type(one) is kind and getattr(one, "owner", "") == owner for one in self.events
            )
        )


def _until(true: Callable[[], object]) -> None:
    ends_at = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends_at
        time.sleep(0.002)


@contextlib.contextmanager
def played(*sinks: Any) -> Iterator[list[events.Event]]:
    """Play one round. Yields its events while things are as it left them."""
    memory, seen = MemoryStore(), Seen()
    store, cut = FaultyStore(memory), FaultyStore(memory)
    options: dict[str, Any] = {"sinks": [*sinks, seen, broken], "store_patience": 0, "ttl": HOUR}
    waiter: threading.Thread | None = None
    with (
        HandClock() as clock,
        Locks(store, owner="ann", **options) as ann,
        Locks(store, owner="bob", **options) as bob,
        Locks(cut, owner="cut off", **options) as victim,
    ):
        try:
            for number in range(5):
                with ann.acquire(f"jobs:{number}", keep=False):
                    clock.advance(20 + number)
            kept = ann.acquire("db:main", ttl=60)
            _turned_down(ann, bob)
            _wait_for_40_seconds(ann, bob, clock, seen)
            _end_in_every_way(ann)
            asyncio.run(_cancelled(store, options))
            store.plan("refuse")
            with pytest.raises(Unavailable):
                bob.acquire("jobs:down")
            waiter = threading.Thread(target=_wait_in_vain, args=(bob,))
            waiter.start()
            _until(lambda: ann.show("db:main").waiters)
            endangered = victim.acquire("jobs:danger", ttl=100)
            cut.plan(then="refuse")
            clock.advance(80)  # `kept` is renewed, and learns that it is wanted
            assert kept.held
            assert endangered.held
            yield seen.events
        finally:
            cut.plan()
            ann.evict("db:main")
            if waiter is not None:
                waiter.join(60)


def _turned_down(ann: Locks, bob: Locks) -> None:
    for _ in range(TIMED_OUT):
        with pytest.raises(AcquireTimeout):
            bob.acquire("db:main", timeout=0.05)

    @ann.guard("db:main", busy="skip")
    def job() -> None: ...

    for _ in range(SKIPPED):
        job()
    with pytest.raises(Busy):
        ann.acquire_all(["backup", "db:main"], timeout=0)


def _wait_for_40_seconds(ann: Locks, bob: Locks, clock: HandClock, seen: Seen) -> None:
    slow = ann.acquire("db:slow", keep=False)
    waits = threading.Thread(
        target=lambda: bob.acquire("db:slow", owner="patient", keep=False).release()
    )
    waits.start()
    seen.until(events.Waiting, "patient")
    clock.advance(40)
    slow.release()
    waits.join(60)


def _end_in_every_way(ann: Locks) -> None:
    for number in range(LOST):
        lost = ann.acquire(f"jobs:victim:{number}", keep=False)
        ann.evict(lost.key)
        with pytest.raises(LeaseLost):
            lost.renew()
    ann.take(ann.acquire("jobs:handed", keep=False).hand_over()).release()
    shared = ann.acquire("jobs:shared", keep=False)
    ann.join(shared.share()).release()
    shared.release()


async def _cancelled(store: FaultyStore, options: dict[str, Any]) -> None:
    async with aio.Locks(store, owner="cancelled", **options) as locks:
        task = asyncio.ensure_future(locks.acquire("db:main"))
        while not task.done():
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.wait([task], timeout=60)


def _wait_in_vain(bob: Locks) -> None:
    with contextlib.suppress(Unavailable):
        bob.acquire("db:main", owner="patient", fair=True).release()
