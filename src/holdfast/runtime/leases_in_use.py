"""The leases of a client, from the grant to their end.

The keeper renews them and reports what becomes of them. This module passes its reports on, first to
the lease and then to the client's sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core import events
from holdfast.core.commands import Claim, Free, Take
from holdfast.core.events import Reason
from holdfast.core.holds import NO_BEAT, Attempt, Hold
from holdfast.core.observations import Observations
from holdfast.core.records import Holder, Mode, anonymous
from holdfast.core.renewing import renew_many_steps, renew_steps
from holdfast.errors import AcquireTimeout, Busy, HoldfastError, LeaseLost, UsageError
from holdfast.observe.sinks import Sinks
from holdfast.runtime import clock
from holdfast.runtime.driver import Driver
from holdfast.runtime.giving_back import GivingBack
from holdfast.runtime.keeper_thread import KeeperThread
from holdfast.runtime.pool import DaemonPool

CALLBACK_THREADS = 4


class LeasesInUse:
    """Looks after the holds of one client, from the grant to the end."""

    def __init__(
        self,
        driver: Driver,
        observations: Observations,
        sinks: Sinks,
        check_usable: Callable[[], None],
        beats_per_second: float | None,
    ) -> None:
        self._driver = driver
        self._observations = observations
        self._batch = observations.facts.batch
        self._check_usable = check_usable
        self.sinks = sinks
        self.forked = False  # whether this process was forked from the one that made the client
        self.callbacks = DaemonPool(CALLBACK_THREADS, "holdfast-callback")
        self.keeper = KeeperThread(self.beat, self._batch, self, beats_per_second)
        self._adopting: dict[str, Any] = {}  # leases of an acquire_all that is still going on

    # --- begin ------------------------------------------------------------------------------

    def started(self, attempt: Attempt) -> None:
        """Tell the sinks that an attempt begins."""
        if self.sinks.listening():
            owner, mode = _who(attempt)
            self.sinks.emit(events.Started(attempt.key, owner, mode, attempt.number))

    def gave_up(self, attempts: Sequence[Attempt], why: BaseException) -> None:
        """Tell the sinks that these attempts ended without a lease."""
        if self.sinks.listening():
            for attempt in attempts:
                owner, _ = _who(attempt)
                self.sinks.emit(events.GaveUp(attempt.key, owner, _reason(why), attempt.number))

    def adopt(self, lease: Any, how: str, attempt: int = 0) -> None:
        """Look after a new lease from now on, and tell the sinks."""
        hold: Hold = lease.hold
        self._check_usable()
        self.keeper.add(hold)
        if self.sinks.listening():
            self.sinks.emit(
                events.Acquired(
                    hold.key, hold.owner, hold.fence, hold.holder.mode, hold.waited, how, attempt
                )
            )

    def keep(self, lease: Any) -> None:
        """Look after a lease of an acquire_all that is still going on."""
        self._adopting[lease.hold.token] = lease
        self.adopt(lease, "Acquired")

    def kept(self, attempt: Attempt) -> Any:
        """Returns the lease that an attempt of an acquire_all has got."""
        return self._adopting.pop(attempt.claimed)

    def disown(self, attempts: Sequence[Attempt]) -> None:
        """End the leases of an acquire_all that failed. Its `undo` then frees their locks."""
        for attempt in attempts:
            lease = self._adopting.pop(attempt.claimed, None)
            if lease is not None and self.keeper.end(lease.hold, "released"):
                self.ended(lease.hold, "Gave back")

    # --- checks -----------------------------------------------------------------------------

    def held(self, hold: Hold) -> bool:
        """Whether the hold is surely valid now."""
        return hold.valid(clock.monotonic()) and not self.forked

    def check_held(self, hold: Hold) -> None:
        """Raise `LeaseLost` unless the hold is surely valid now."""
        if not self.held(hold):
            why = self._why(hold)
            raise LeaseLost(
                f"The lease on {hold.key!r} is not yours: {why}.", key=hold.key, why=why
            )

    def check_may_end(self, hold: Hold) -> None:
        """Raise unless this party may end the lease."""
        if not hold.care.may_release:
            raise UsageError(
                f"The lease on {hold.key!r} was joined without the right to end it: ask for a "
                f"ticket from share(release=True)."
            )

    def check_renewable(self, hold: Hold) -> None:
        """Raise unless the hold is surely valid and the client can be used."""
        self._check_usable()
        self.check_held(hold)

    def _why(self, hold: Hold) -> str:
        if self.forked:
            return "it belongs to the parent process"
        if hold.state == "held":
            return "it could not be renewed in time"
        return hold.why or f"it was {hold.state}"

    # --- end --------------------------------------------------------------------------------

    def begin_release(self, hold: Hold) -> Attempt | None:
        """End a hold. Returns the attempt that frees it in the store; None if there is none."""
        if self.forked or not self.keeper.end(hold, "released"):
            return None
        if not hold.care.may_release:
            self.ended(hold, "Left")
            return None
        return Attempt(hold.key, Free(hold.token), next_beat=NO_BEAT, touched=True)

    def finish_release(self, hold: Hold, freed: bool) -> None:
        """Tell the sinks how the release went."""
        if freed:
            self.ended(hold, "Released")
        else:
            hold.was_gone()
            self.lost(hold)

    def begin_hand_over(self, hold: Hold) -> None:
        """End a hold that is about to be offered to somebody else."""
        if not self.keeper.end(hold, "handed over"):
            self.check_held(hold)

    def ended(self, hold: Hold, how: str) -> None:
        """Tell the sinks that a hold ended because its holder wanted it."""
        if self.sinks.listening():
            held_for = clock.monotonic() - hold.acquired
            self.sinks.emit(events.Released(hold.key, hold.owner, hold.fence, held_for, how))

    def close(self) -> GivingBack:
        """End all holds. Returns what gives back those that nobody else keeps alive."""
        giving_back = GivingBack(self._driver, self.ended)
        returned, left = self.keeper.close(giving_back)
        for hold in (*returned, *left):
            self._tell(hold, "lost")  # at once: work under the lease must stop
        for hold in left:
            self.ended(hold, "Left")
        if not returned:
            giving_back.done.set()
        self.callbacks.close()
        return giving_back

    # --- beats, for the keeper --------------------------------------------------------------

    def beat(self, holds: Sequence[Hold]) -> Sequence[Exception | None]:
        """Renew these holds. Returns an error or None for each."""
        outcomes: Sequence[Exception | None]
        if len(holds) > 1 and self._batch > 1:
            outcomes = self._beat_many(holds)
        else:
            outcomes = [self._beat_one(hold) for hold in holds]
        for hold, outcome in zip(holds, outcomes, strict=True):
            if outcome is not None and not isinstance(outcome, LeaseLost):
                expected = isinstance(outcome, HoldfastError)
                why = str(outcome) if expected else f"{type(outcome).__name__}: {outcome}"
                self.sinks.emit(events.StoreTrouble(hold.key, why, "renew"))
        return outcomes

    def _beat_many(self, holds: Sequence[Hold]) -> Sequence[Exception | None]:
        try:
            return self._driver.run(renew_many_steps(self._observations, holds))
        except Exception:  # unexpected: find out which hold it comes from
            return [self._beat_one(hold) for hold in holds]

    def _beat_one(self, hold: Hold) -> Exception | None:
        try:
            self._driver.run(renew_steps(self._observations, hold))
        except Exception as trouble:
            return trouble
        return None

    # --- reports of the keeper (see keeper_thread.Listener) ---------------------------------

    def in_danger(self, hold: Hold) -> None:
        """Pass on that renewals have failed for two thirds of the ttl."""
        remaining = max(0, hold.deadline - clock.monotonic())
        self.sinks.emit(events.InDanger(hold.key, hold.owner, hold.fence, remaining))
        self._tell(hold, "danger")

    def out_of_danger(self, hold: Hold) -> None:
        """Pass on that a renewal succeeded again."""
        self.sinks.emit(events.OutOfDanger(hold.key, hold.owner, hold.fence))

    def lost(self, hold: Hold) -> None:
        """Pass on that a hold is lost: to the lease first, then to the sinks."""
        self._tell(hold, "lost")
        self.sinks.emit(events.Lost(hold.key, hold.owner, hold.fence, hold.why))

    def wanted(self, hold: Hold) -> None:
        """Pass on that somebody waits for the lock."""
        waiters = tuple(anonymous(waiter) for waiter in hold.wanted)
        self.sinks.emit(events.Wanted(hold.key, hold.owner, hold.fence, waiters))
        self._tell(hold, "wanted")

    def dropped(self, hold: Hold) -> None:
        """Tell the sinks that a hold ended because nothing refers to its lease any more."""
        self.sinks.emit(events.Lost(hold.key, hold.owner, hold.fence, hold.why))

    def evicted(self, key: str, holders: Sequence[Holder]) -> None:
        """Tell the sinks that this client evicted holders."""
        self.sinks.emit(events.Evicted(key, tuple(anonymous(holder) for holder in holders)))

    def _tell(self, hold: Hold, what: str) -> None:
        if hold.signals is not None:
            hold.signals.tell(what)


def _who(attempt: Attempt) -> tuple[str, Mode]:
    """Returns the owner and mode of an attempt. Those of a joined lease are not known yet."""
    command = attempt.command
    if isinstance(command, Claim):
        return command.owner, command.mode
    return command.owner if isinstance(command, Take) else "", "exclusive"


def _reason(why: BaseException) -> Reason:
    if isinstance(why, AcquireTimeout):
        return "timeout"
    if isinstance(why, Busy):
        return "busy"
    return "error" if isinstance(why, Exception) else "interrupted"
