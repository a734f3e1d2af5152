"""The leases of a client, from the grant to their end.

The keeper renews them and reports what becomes of them. This module passes its reports on, first to
the lease and then to the client's sinks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Sequence
from typing import Any

from holdfast.core import events
from holdfast.core.cohorts import Cohorts
from holdfast.core.commands import Claim, Free, Take
from holdfast.core.events import Ending, How, Why, party, seconds
from holdfast.core.holds import NO_BEAT, Attempt, Hold
from holdfast.core.observations import Observations
from holdfast.core.records import SECOND, History, Holder, Micros, Mode, Waiter
from holdfast.core.renewing import renew_many_steps, renew_steps
from holdfast.errors import AcquireTimeout, Busy, HoldfastError, LeaseLost, UsageError
from holdfast.observe.sinks import Sinks
from holdfast.runtime import clock
from holdfast.runtime.cleaning import Cleaning
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
        cohorts: Cohorts,
    ) -> None:
        self._driver = driver
        self._cohorts: Cohorts | None = cohorts  # None in a forked child
        self._observations = observations
        self._batch = observations.facts.batch
        self._check_usable = check_usable
        self.sinks = sinks
        self._process = os.getpid()
        self.callbacks = DaemonPool(CALLBACK_THREADS, "holdfast-callback")
        self.keeper = KeeperThread(self.beat, self._batch, self, beats_per_second)
        self.cleaning = Cleaning(driver)
        self._calls = self.cleaning.calls
        # A call has ended, and has left nothing that the client does not know of.
        self.leave: Callable[[int], None] = self._calls.discard
        self._adopting: dict[str, Any] = {}  # leases of an acquire_all that is still going on

    @property
    def forked(self) -> bool:
        """Whether this process was forked from the one that has these leases."""
        return self._process != os.getpid()

    # --- begin ------------------------------------------------------------------------------

    def started(self, attempt: Attempt, now: Micros) -> None:
        """Tell the sinks that an attempt begins."""
        attempt.began = now
        if self.sinks.starts:
            owner, mode = _who(attempt)
            self.sinks.emit(events.Started(attempt.key, owner, mode, attempt.number, attempt.trace))

    def enter(self, call: int) -> None:
        """A call with this id begins that may get a lock. Until it calls `leave`, a thread that
        closes the client waits for it. Raises if the client is closed already: it looks after it
        has registered the call, so that either the call or the closing thread sees the other."""
        self._calls.add(call)
        self._check_usable()

    def gave_up(self, attempts: Sequence[Attempt], why: BaseException) -> None:
        """Tell the sinks that these attempts ended without a lease."""
        if not self.sinks.listening():
            return
        error = type(why).__name__
        for attempt in attempts:
            owner, _ = _who(attempt)
            number = attempt.number
            waited = seconds(clock.monotonic() - attempt.began) if attempt.began else 0.0
            self.sinks.emit(events.GaveUp(attempt.key, owner, _reason(why), number, waited, error))
            if isinstance(why, Busy) and why.key == attempt.key:
                why.attempt = number

    def skipped(self, key: str, owner: str, function: str, why: Busy) -> None:
        """Tell the sinks that a guarded function did not run."""
        self.sinks.emit(events.Skipped(key, owner, function, why.attempt))

    def adopt(self, lease: Any, how: How) -> None:
        """Look after a new lease from now on, and tell the sinks."""
        hold = lease.hold
        self._check_usable()
        self.keeper.add(hold, lease)
        if self.sinks.listening():
            holder, waited = hold.holder, hold.waited / SECOND
            self.sinks.emit(
                events.Acquired(
                    hold.key, holder.owner, holder.fence, holder.mode, waited, how, hold.attempt
                )
            )

    def keep(self, lease: Any) -> None:
        """Look after a lease of an acquire_all that is still going on."""
        self._adopting[lease.hold.token] = lease
        self.adopt(lease, "acquired")

    def kept(self, attempt: Attempt) -> Any:
        """Returns the lease that an attempt of an acquire_all has got."""
        return self._adopting.pop(attempt.claimed)

    def disown(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """End the leases of an acquire_all that failed. Its `undo` then frees their locks. Returns
        the attempts that had got no lease."""
        in_vain = []
        for attempt in attempts:
            lease = self._adopting.pop(attempt.claimed, None)
            if lease is None:
                in_vain.append(attempt)
            elif self.keeper.end(lease.hold, "released"):
                self.ended(lease.hold, "given back")
        return in_vain

    def holds_itself(self, key: str, fences: Container[int | None], caller: object) -> bool:
        """Whether this thread or task holds the lock under one of these fences."""
        return any(
            hold.key == key and hold.fence in fences and hold.caller() is caller
            for hold in self.keeper.holds()
            if hold.caller is not None
        )

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
        if not self.forked:
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
        """End a hold. Returns the attempt that frees it in the store, or None if there is nothing
        to free. The caller has the attempt `leave` when it has ended."""
        attempt = Attempt(hold.key, Free(hold.token), next_beat=NO_BEAT, touched=True)
        # Before the hold ends: a thread that closes the client gives the hold back or waits for us.
        self._calls.add(id(attempt))
        if not self.forked and self.keeper.end(hold, "released"):
            if hold.care.may_release:
                return attempt
            self.ended(hold, "left")
        self.leave(id(attempt))
        return None

    def pass_on(self, hold: Hold, attempt: Attempt, now: Micros) -> bool:
        """Pass an ended hold on to the next caller of this client, if somebody waits and may have
        it. Returns False if it goes back to the store, by this attempt."""
        cohorts = self._cohorts
        if cohorts is None:
            return False
        if cohorts.pass_on(hold, now):
            self.ended(hold, "released")
            return True
        cohorts.going_back(hold, attempt)
        return False

    def is_passed_on(self, hold: Hold) -> bool:
        """Whether another caller of this client has the hold's grant by now."""
        return self._cohorts is not None and self._cohorts.was_passed_on(hold)

    def next_turn(self, hold: Hold) -> None:
        """Let the next caller of this client go to the store, unless the hold was passed on."""
        if self._cohorts is not None:
            self._cohorts.move_on(hold.member)

    def abandon(self) -> None:
        """Forget the callers of the parent process. Called in a forked child, where a mutex that
        another thread had stays locked for ever."""
        self._cohorts = None

    def was_gone(self, hold: Hold, history: History) -> None:
        """Tell the sinks that there was nothing left of a hold to be released."""
        hold.was_gone(history)
        self.lost(hold)

    def begin_hand_over(self, hold: Hold, attempt: Attempt) -> None:
        """End a hold that is about to be offered to somebody else by this attempt, which is to
        `leave`."""
        self._calls.add(id(attempt))  # as for a release
        if not self.keeper.end(hold, "handed over"):
            self.leave(id(attempt))
            self.check_held(hold)

    def handed_over(self, hold: Hold) -> None:
        """Tell the sinks that a hold was offered to somebody else."""
        if self.sinks.listening():
            self.sinks.emit(
                events.HandedOver(hold.key, hold.owner, hold.fence, _held_for(hold), hold.attempt)
            )

    def ended(self, hold: Hold, how: Ending) -> None:
        """Tell the sinks that a hold ended because its holder wanted it."""
        if self.sinks.listening():
            holder, held_for = hold.holder, (clock.monotonic() - hold.acquired) / SECOND
            self.sinks.emit(
                events.Released(hold.key, holder.owner, holder.fence, held_for, how, hold.attempt)
            )

    def close(self, within_s: float) -> GivingBack:
        """End all holds. Returns what gives back those that nobody else keeps alive."""
        giving_back = GivingBack(self._driver, self.ended, self.cleaning, self.sinks, within_s)
        returned, left = self.keeper.close(giving_back)
        if self._cohorts is not None:
            self._cohorts.close()
        for hold in (*returned, *left):
            self._tell(hold, "lost")  # at once: work under the lease must stop
        for hold in left:
            self.ended(hold, "left")
        if not returned:
            giving_back.done.set()
        self.cleaning.close()
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
            if outcome is None:
                if self.sinks.presence.away:
                    self.sinks.presence.answered()
                self.renewed(hold)
            elif not isinstance(outcome, LeaseLost):
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

    def renewed(self, hold: Hold) -> None:
        """Tell the sinks that a hold was renewed."""
        if self.sinks.listening():
            self.sinks.emit(
                events.Renewed(hold.key, hold.owner, hold.fence, _remaining(hold), hold.attempt)
            )

    def in_danger(self, hold: Hold) -> None:
        """Pass on that renewals have failed for two thirds of the ttl."""
        self.sinks.emit(
            events.InDanger(hold.key, hold.owner, hold.fence, _remaining(hold), hold.attempt)
        )
        self._tell(hold, "danger")

    def out_of_danger(self, hold: Hold) -> None:
        """Pass on that a renewal succeeded again."""
        self.sinks.emit(events.OutOfDanger(hold.key, hold.owner, hold.fence, hold.attempt))

    def lost(self, hold: Hold) -> None:
        """Pass on that a hold is lost: to the lease first, then to the sinks."""
        self._tell(hold, "lost")
        self.dropped(hold)

    def wanted(self, hold: Hold) -> None:
        """Pass on that somebody waits for the lock."""
        waiters = tuple(party(waiter) for waiter in hold.wanted)
        self.sinks.emit(events.Wanted(hold.key, hold.owner, hold.fence, waiters, hold.attempt))
        self._tell(hold, "wanted")

    def dropped(self, hold: Hold) -> None:
        """Tell the sinks that a hold is lost: perhaps because nothing refers to its lease."""
        self.next_turn(hold)
        self.sinks.emit(
            events.Lost(hold.key, hold.owner, hold.fence, hold.why, _held_for(hold), hold.attempt)
        )

    def evicted(
        self, key: str, parties: Sequence[Holder | Waiter], operator: str, reason: str
    ) -> None:
        """Tell the sinks that this client evicted holders, or those who wait."""
        if self._cohorts is not None and any(isinstance(one, Holder) for one in parties):
            self._cohorts.evicted(key)
        out = tuple(party(one) for one in parties)
        self.sinks.emit(events.Evicted(key, out, operator, reason))

    def _tell(self, hold: Hold, what: str) -> None:
        if hold.signals is not None:
            hold.signals.tell(what)


def _who(attempt: Attempt) -> tuple[str, Mode]:
    """Returns the owner and mode of an attempt. Those of a joined lease are not known yet."""
    command = attempt.command
    if isinstance(command, Claim):
        return command.owner, command.mode
    return command.owner if isinstance(command, Take) else "", "exclusive"


def _held_for(hold: Hold) -> float:
    return seconds(clock.monotonic() - hold.acquired)


def _remaining(hold: Hold) -> float:
    return seconds(max(0, hold.deadline - clock.monotonic()))


def _reason(why: BaseException) -> Why:
    if isinstance(why, AcquireTimeout):
        return "timeout"
    if isinstance(why, Busy):
        return "busy"
    return "error" if isinstance(why, Exception) else "cancelled"
