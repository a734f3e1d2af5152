"""Runs the keeper's schedule: one watching thread per client, and a few for the beats.

The watching thread never talks to the store. It hands beats to a small pool, tells danger
and loss at their moments, and so is never held up by a beat that hangs. asyncio clients
use it too: a blocked event loop must not cost a lease.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

from holdfast.core.holds import Hold, State
from holdfast.core.keeper import Due, Keeper
from holdfast.core.records import SECOND, Micros
from holdfast.errors import ClientClosed, LeaseLost
from holdfast.observe.log import logger, printable
from holdfast.runtime import clock
from holdfast.runtime.pool import DaemonPool

BEAT_THREADS = 4
# With nothing to keep for so long, the watching thread ends: a client that nobody closed can go.
IDLE_S = 10.0
# With something to keep, it looks this often: a timer stands still while the machine sleeps, and
# our clock does not.
LONGEST_SLEEP_S = 1.0

CLOSED = "its client was closed"

Beat = Callable[[Sequence[Hold]], Sequence[Exception | None]]


class Listener(Protocol):
    """Who is told what happens to a hold."""

    def in_danger(self, hold: Hold) -> None: ...
    def out_of_danger(self, hold: Hold) -> None: ...
    def lost(self, hold: Hold) -> None: ...
    def wanted(self, hold: Hold) -> None: ...
    def dropped(self, hold: Hold) -> None: ...


class LeaseRef(weakref.ref[Any]):
    """What notes that nobody refers to a lease any more. Not a line of Python runs then: an
    interrupt that comes in a finalizer is lost."""

    __slots__ = ("hold",)
    hold: Hold


class KeeperThread:
    """Keeps the holds of one client alive until they are ended or lost.

    It knows no leases. One that nobody refers to any more cannot be released by anybody:
    then its hold is let go of, its renewal stops, and the ttl frees it.
    """

    def __init__(
        self, beat: Beat, batch: int, listener: Listener, beats_per_second: float | None
    ) -> None:
        self._beat = beat
        self._batch = batch
        self._listener = listener
        self._keeper = Keeper(beats_per_second)
        self._dropped: deque[weakref.ref[Any]] = deque()
        # Called by the garbage collector, at any instruction of any thread: takes no lock.
        self._drop = self._dropped.append
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._wakes_at: Micros | None = None
        self._pool = DaemonPool(BEAT_THREADS, "holdfast-beat")
        self._thread: threading.Thread | None = None
        self._closed = False
        self._last_deed: Callable[[], object] | None = None  # of the watching thread

    def __len__(self) -> int:
        return len(self._keeper)

    def add(self, hold: Hold) -> None:
        """Take a hold into care. Not after the end: nobody would tell its loss."""
        with self._lock:
            if self._closed:
                raise ClientClosed
            self._wake_by(self._keeper.add(hold))

    def refer(self, lease: Any, hold: Hold) -> None:
        """Let go of a hold that is in care, when nobody refers to its lease any more."""
        referent = LeaseRef(lease, self._drop)
        referent.hold = hold
        hold.referent = referent

    def end(self, hold: Hold, state: State, why: str = "") -> bool:
        """End a hold for good and let go of it. False: it had ended before."""
        with self._alone():
            self._keeper.discard(hold)
            return hold.end(state, why)

    def holds(self) -> list[Hold]:
        """All holds in care."""
        with self._alone():
            return self._keeper.holds()

    def lose(self, hold: Hold, why: str) -> None:
        """It came to light that a hold is no longer ours."""
        if self.end(hold, "lost", why):
            self._listener.lost(hold)

    def close(self, give_back: Callable[[list[Hold]], object]) -> tuple[list[Hold], list[Hold]]:
        """Stop. What is still held is lost to this client. What nobody else keeps alive is then
        given back, in the watching thread, because a store may take its time. Returns what is
        given back, and what is left to its ttl."""
        with self._alone():
            self._closed = True
            ended = [hold for hold in self._keeper.holds() if hold.end("lost", CLOSED)]
            for hold in ended:
                self._keeper.discard(hold)
            ours = [hold for hold in ended if hold.only_ours] if self._thread else []
            if ours:
                self._last_deed = partial(give_back, ours)
            if not sys.is_finalizing():
                self._changed.notify()
        self._pool.close()
        return ours, [hold for hold in ended if hold not in ours]

    def _alone(self) -> AbstractContextManager[Any]:
        """For what may be done while the interpreter ends. By then all other threads are gone
        for good, one of them perhaps with the lock, and there is nobody to keep out."""
        return nullcontext() if sys.is_finalizing() else self._lock

    # --- the watching thread ----------------------------------------------------------------

    def _wake_by(self, at: Micros | None) -> None:
        """See to it that the watching thread looks at this time."""
        if at is None:
            return
        if self._thread is None:
            self._start()
        elif self._wakes_at is None or at < self._wakes_at:
            self._changed.notify()

    def _start(self) -> None:
        thread = threading.Thread(target=self._watch, name="holdfast-keeper", daemon=True)
        self._thread = thread
        try:
            thread.start()
        except BaseException:  # no thread to be had, or interrupted: the next one tries again
            if not thread.is_alive():
                self._thread = None
            raise

    def _watch(self) -> None:
        self._watch_holds()
        if self._last_deed is not None:
            self._last_deed()

    def _watch_holds(self) -> None:
        while True:
            with self._lock:
                dropped = self._let_go_of_dropped()
                due = self._keeper.poll(clock.monotonic())
                if not due and not dropped:
                    if self._closed:
                        return
                    if not self._sleep():
                        self._thread = None
                        return
                    continue
            for hold in dropped:
                _say(self._listener.dropped, hold)
            self._tell(due)

    def _sleep(self) -> bool:
        """False: for a while there was nothing to keep."""
        self._wakes_at = self._keeper.next_at()
        if self._wakes_at is None:
            if not self._changed.wait(IDLE_S) and len(self._keeper) == 0:
                return False
        else:
            rest = max(0, self._wakes_at - clock.monotonic()) / SECOND
            self._changed.wait(min(rest, LONGEST_SLEEP_S))
        self._wakes_at = 0  # awake: nobody needs to wake us
        return True

    def _tell(self, due: Due) -> None:
        for hold in due.losses:
            _say(self._listener.lost, hold)
        for start in range(0, len(due.beats), self._batch):
            self._submit(due.beats[start : start + self._batch])
        for hold in due.dangers:
            _say(self._listener.in_danger, hold)

    def _submit(self, batch: list[Hold]) -> None:
        try:
            self._pool.run(partial(self._run_beats, batch))
        except RuntimeError as trouble:  # no thread to be had: tried again like a failed beat
            self._beats_done(batch, [trouble] * len(batch))

    def _let_go_of_dropped(self) -> list[Hold]:
        dropped = []
        while self._dropped:
            referent = self._dropped.popleft()
            assert isinstance(referent, LeaseRef)
            hold = referent.hold
            self._keeper.discard(hold)
            if hold.end("lost", "nobody kept a reference to its lease, so it is not renewed"):
                dropped.append(hold)
        return dropped

    # --- beats, in the pool ------------------------------------------------------------------

    def _run_beats(self, holds: list[Hold]) -> None:
        held = [hold for hold in holds if hold.state == "held"]
        unwanted = [hold for hold in held if not hold.wanted]
        outcomes: Sequence[BaseException | None]
        try:
            outcomes = self._beat(held)
        except BaseException as trouble:  # every hold's beat failed alike
            logger.exception("The keeper's beat failed")
            outcomes = [trouble] * len(held)
        self._beats_done(held, outcomes)
        for hold in unwanted:
            if hold.wanted and hold.state == "held":
                _say(self._listener.wanted, hold)

    def _beats_done(self, holds: list[Hold], outcomes: Sequence[BaseException | None]) -> None:
        lost, rescued = [], []
        with self._lock:
            now = clock.monotonic()
            for hold, outcome in zip(holds, outcomes, strict=True):
                if isinstance(outcome, LeaseLost):
                    lost.append((hold, outcome.why))
                elif self._keeper.beat_done(hold, now, renewed=outcome is None):
                    rescued.append(hold)
            self._wake_by(self._keeper.next_at())
        for hold, why in lost:
            _say(partial(self.lose, why=why), hold)
        for hold in rescued:
            _say(self._listener.out_of_danger, hold)


def _say(tell: Callable[[Hold], None], hold: Hold) -> None:
    """Tell it from a thread of the keeper, which goes on whatever the listener does."""
    try:
        tell(hold)
    except BaseException:  # also `sys.exit()`, which here would end nothing but the keeper
        logger.exception("Telling what became of the lease on %s failed", printable(hold.key))
