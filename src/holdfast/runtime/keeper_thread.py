"""Runs the keeper's schedule: one watching thread per client, and a few threads for beats.

The watching thread never talks to the store. It hands beats to a small pool and reports danger and
loss when they are due, so a beat that hangs does not delay it. Clients of asyncio use the same
threads, so that a blocked event loop does not lose a lease.
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
# With nothing to keep for this long, the watching thread ends, so that a client that was never
# closed can be collected.
IDLE_S = 10.0
# With something to keep, it wakes at least this often: a timer stands still while the machine
# sleeps, our clock does not.
LONGEST_SLEEP_S = 1.0

CLOSED = "its client was closed"

Beat = Callable[[Sequence[Hold]], Sequence[Exception | None]]

# Every keeper of this process, for `holdfast.testing.hand_clock`.
everyone: weakref.WeakSet[KeeperThread] = weakref.WeakSet()


class Listener(Protocol):
    """Receives the keeper's reports about holds."""

    def in_danger(self, hold: Hold) -> None: ...
    def out_of_danger(self, hold: Hold) -> None: ...
    def lost(self, hold: Hold) -> None: ...
    def wanted(self, hold: Hold) -> None: ...
    def dropped(self, hold: Hold) -> None: ...


class LeaseRef(weakref.ref[Any]):
    """A weak reference that notes when nothing refers to a lease any more.

    Its callback is `deque.append`, so that no Python code runs then: an interrupt that arrives in a
    finalizer would be lost."""

    __slots__ = ("hold",)
    hold: Hold


class KeeperThread:
    """Keeps the holds of one client alive until they end or are lost.

    It does not refer to leases. If nothing refers to a lease any more, nobody can release it: the
    keeper then drops its hold, stops renewing it, and the ttl frees the lock.
    """

    def __init__(
        self, beat: Beat, batch: int, listener: Listener, beats_per_second: float | None
    ) -> None:
        self._beat = beat
        self._batch = batch
        self._listener = listener
        self._keeper = Keeper(beats_per_second)
        self._dropped: deque[weakref.ref[Any]] = deque()
        # The garbage collector calls this at any instruction of any thread, so it takes no lock.
        self._drop = self._dropped.append
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._wakes_at: Micros | None = None
        self._pool = DaemonPool(BEAT_THREADS, "holdfast-beat")
        self._thread: threading.Thread | None = None
        self._closed = False
        self._at_the_end: Callable[[], object] | None = None  # called by the watching thread
        everyone.add(self)

    def __len__(self) -> int:
        return len(self._keeper)

    def add(self, hold: Hold, lease: Any) -> None:
        """Keep a hold alive from now on, until nothing refers to its lease any more. Raises if the
        keeper is closed: nobody would report the hold's loss."""
        referent = LeaseRef(lease, self._drop)
        referent.hold = hold
        hold.referent = referent
        with self._lock:
            if self._closed:
                raise ClientClosed
            self._wake_by(self._keeper.add(hold))

    def end(self, hold: Hold, state: State, why: str = "") -> bool:
        """End a hold for good and drop it. Returns False if it had ended before."""
        with self._alone():
            self._keeper.discard(hold)
            return hold.end(state, why)

    def holds(self) -> list[Hold]:
        """Returns all holds that are kept."""
        with self._alone():
            return self._keeper.holds()

    def lose(self, hold: Hold, why: str) -> None:
        """End a hold that turned out to be lost, and report it."""
        if self.end(hold, "lost", why):
            self._listener.lost(hold)

    def close(self, give_back: Callable[[list[Hold]], object]) -> tuple[list[Hold], list[Hold]]:
        """Stop, and end all holds. The watching thread then gives back those that nobody else keeps
        alive, because a store may be slow. Returns the holds that are given back, and the others,
        which are left to their ttl."""
        with self._alone():
            self._closed = True
            ended = [hold for hold in self._keeper.holds() if hold.end("lost", CLOSED)]
            for hold in ended:
                self._keeper.discard(hold)
            ours = [hold for hold in ended if hold.only_ours] if self._thread else []
            if ours:
                self._at_the_end = partial(give_back, ours)
            if not sys.is_finalizing():
                self._changed.notify()
        self._pool.close()
        return ours, [hold for hold in ended if hold not in ours]

    def _alone(self) -> AbstractContextManager[Any]:
        """Returns the mutex, or nothing while the interpreter ends: by then the other threads are
        gone for good, perhaps one with the mutex, and there is nobody to keep out."""
        return nullcontext() if sys.is_finalizing() else self._lock

    # --- for clocks that are moved by hand ---------------------------------------------------

    def wake(self) -> None:
        """Have the watching thread look at the clock now."""
        with self._lock:
            self._changed.notify()

    def next_moment(self) -> Micros | None:
        """Returns when there will be something to do; None: nothing is scheduled."""
        with self._lock:
            return self._keeper.next_at()

    def has_work(self, now: Micros) -> bool:
        """Whether something is due that is not done yet."""
        with self._lock:
            if self._closed or self._thread is None:
                return False
            next_at = self._keeper.next_at()
            return self._keeper.beating or (next_at is not None and next_at <= now)

    # --- the watching thread ----------------------------------------------------------------

    def _wake_by(self, at: Micros | None) -> None:
        """Make sure that the watching thread wakes at this time."""
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
        except BaseException:  # no thread, or an interrupt: the next call tries again
            if not thread.is_alive():
                self._thread = None
            raise

    def _watch(self) -> None:
        self._watch_holds()
        if self._at_the_end is not None:
            self._at_the_end()

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
        """Sleep until something is due. Returns False if there was nothing to keep for a while."""
        self._wakes_at = self._keeper.next_at()
        if self._wakes_at is None:
            if not self._changed.wait(IDLE_S) and len(self._keeper) == 0:
                return False
        else:
            rest = max(0, self._wakes_at - clock.monotonic()) / SECOND
            self._changed.wait(min(rest, LONGEST_SLEEP_S))
        self._wakes_at = 0  # awake: no call needs to wake us
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
        except RuntimeError as trouble:  # no thread can be started: counts as a failed beat
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
        except BaseException as trouble:  # counts as a failed beat of every hold
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
    """Report from a thread of the keeper, which must go on whatever the listener does."""
    try:
        tell(hold)
    except BaseException:  # also `sys.exit()`, which would end only the keeper's thread
        logger.exception("A callback for the lease on %s failed", printable(hold.key))
