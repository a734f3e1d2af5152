"""What the two faces share: one store, one keeper, the checks and the events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from os import urandom
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.api import options
from holdfast.api.options import Seconds
from holdfast.core import events
from holdfast.core.acquiring import Terms, patience_for, queues_at_once
from holdfast.core.commands import Claim, Free, Offer, Renew, Take
from holdfast.core.events import Event
from holdfast.core.holds import NO_BEAT, Attempt, Care, Hold
from holdfast.core.observations import Observations
from holdfast.core.records import SECOND, Holder, Micros, anonymous
from holdfast.core.renewing import renew_many_steps, renew_steps
from holdfast.core.steps import BEAT_BYTES, TOKEN_BYTES
from holdfast.core.waiting import BoundedWait
from holdfast.errors import (
    BadKey,
    BadOption,
    BadTicket,
    ClientClosed,
    ClientForked,
    HoldfastError,
    LeaseLost,
    UsageError,
)
from holdfast.observe.log import log_event
from holdfast.runtime import clock, endings, fork_hooks
from holdfast.runtime.driver import Driver
from holdfast.runtime.giving_back import GivingBack
from holdfast.runtime.keeper_thread import KeeperThread
from holdfast.runtime.pool import DaemonPool
from holdfast.stores.base import Store

if TYPE_CHECKING:
    from holdfast.core.tickets import Kind, Ticket

DEFAULT_TTL_S = 30.0
NO_NOTE: dict[str, Any] = {}  # one for all: nobody changes a note that was given
# How long release, hand-over, join and take go on trying while the store is in trouble.
PATIENCE: Micros = 5 * SECOND
CALLBACK_THREADS = 4

logger = logging.getLogger("holdfast")


class Client:
    """A store with everything that belongs to it in this process."""

    def __init__(
        self,
        store: Store,
        *,
        owner: str | None = None,
        ttl: Seconds = DEFAULT_TTL_S,
        store_patience: Seconds = 60.0,
        beats_per_second: float | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        beats_per_second = options.check_cap(beats_per_second)
        if on_event is not None:
            options.check_callback(on_event, "on_event")
        self.store = store
        self.facts = store.facts
        self.max_key_bytes = store.facts.max_key_bytes
        self.owner = options.default_owner() if owner is None else options.check_owner(owner)
        self.ttl = options.check_ttl(ttl)
        self.store_patience = options.micros(store_patience, "store_patience")
        self.on_event = on_event
        self.observations = Observations(store.facts)
        self._adopting: dict[str, Any] = {}  # leases of an acquire_all that still goes on
        self.driver = Driver(store, self.observations, self.emit, self.keep, self.check_usable)
        self.callbacks = DaemonPool(CALLBACK_THREADS, "holdfast-callback")
        self.make_lease: Callable[[Hold], Any]
        self._waits = Terms(store_patience=self.store_patience)
        self._tries = Terms(0, store_patience=self.store_patience)
        self.forked = False  # this process is a child of the one that made the client
        self._unusable: type[HoldfastError] | None = None
        fork_hooks.register(self)
        endings.register(self)
        self.keeper = KeeperThread(self.beat, store.facts.batch, self, beats_per_second)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UsageError("Locks cannot be copied or pickled: call connect() where they are used.")

    # --- is it usable -----------------------------------------------------------------------

    def check_usable(self) -> None:
        """Raise unless this client can be used here."""
        if self._unusable is not None:
            raise self._unusable

    @property
    def usable(self) -> bool:
        """Neither closed, nor of the process that this one was forked from."""
        return self._unusable is None

    def close(self) -> GivingBack | None:
        """Stop the keeper. The caller waits for the leases that are given back, and then closes
        the store. None: this client was closed before, or it is the parent process's."""
        if self._unusable is not None:
            return None
        self._unusable = ClientClosed
        giving_back = GivingBack(self.driver, self.ended)
        returned, left = self.keeper.close(giving_back)
        for hold in (*returned, *left):
            self._tell(hold, "lost")  # now: whoever works under it must stop
        for hold in left:
            self.ended(hold, "Left")
        if not returned:
            giving_back.done.set()
        self.callbacks.close()
        return giving_back

    def end(self) -> None:
        """The program ends: give back what is still held, as well as it goes."""
        giving_back = self.close()
        if giving_back is not None:
            giving_back.wait()

    def abandon(self) -> None:
        """In a forked child: everything here is the parent's."""
        self.forked = True
        self._unusable = ClientForked
        self.store.abandon()

    # --- what callers ask for ---------------------------------------------------------------

    def claim(
        self, key: str, ttl: Seconds | None, mode: str | None, limit: int | None,
        owner: str | None, note: dict[str, Any] | None, terms: Terms,
    ) -> Attempt:  # fmt: skip
        """A checked claim with a token of its own."""
        self.check_usable()
        key = options.check_key(key, self.max_key_bytes)
        drawn = urandom(TOKEN_BYTES + BEAT_BYTES).hex()
        checked_mode, checked_limit = options.check_mode(mode, limit)
        checked_ttl = self.ttl if ttl is None else options.check_ttl(ttl)
        scripted = self.facts.scripted
        # Said here where it is usual, it saves `acquire_steps` a copy.
        queue = scripted and queues_at_once(terms, scripted)
        claim = Claim(
            drawn[: 2 * TOKEN_BYTES],
            self.owner if owner is None else options.check_owner(owner),
            checked_mode,
            checked_ttl,
            checked_limit,
            NO_NOTE if note is None else options.check_note(note),
            queue,
            patience_for(checked_ttl, 0, scripted) if queue else 0,
        )
        return Attempt(key, claim, drawn[2 * TOKEN_BYTES :])

    def terms(
        self, timeout: Seconds | None, fair: bool | None, keep: bool, max_hold: Seconds | None
    ) -> Terms:
        """Checked terms."""
        if fair is None and keep is True and max_hold is None:
            if timeout is None:
                return self._waits
            if timeout == 0 and options.is_plain(timeout):
                return self._tries
        return Terms(
            None if timeout is None else options.micros(timeout, "timeout"),
            options.check_fair(fair),
            self.store_patience,
            self.care(keep, max_hold),
        )

    def care(self, keep: bool, max_hold: Seconds | None) -> Care:
        """How a lease is to be looked after."""
        options.check_switch(keep, "keep")
        bound = None if max_hold is None else options.micros(max_hold, "max_hold")
        return Care(keep, bound)

    def joined_care(self, keep: bool, max_hold: Seconds | None, may_release: bool) -> Care:
        """The same, for a lease that another party looks after too."""
        return replace(self.care(keep, max_hold), may_release=may_release, joined=True)

    def patience(self, key: str, timeout: Seconds | None) -> BoundedWait:
        """A checked wait for a lock, without a claim to it."""
        self.check_usable()
        return BoundedWait(
            options.check_key(key, self.facts.max_key_bytes),
            self.owner,
            None if timeout is None else options.micros(timeout, "timeout"),
            self.store_patience,
            clock.monotonic(),
        )

    def joining(self, ticket: str) -> tuple[Attempt, bool]:
        """What a share ticket asks for, and whether it may release."""
        read = self._unsealed("share", ticket)
        return Attempt(read.key, Renew(read.token)), read.may_release

    def taking(
        self, ticket: str, owner: str | None, ttl: Seconds | None, note: dict[str, Any] | None
    ) -> Attempt:
        """What a hand-over ticket asks for."""
        read = self._unsealed("hand-over", ticket)
        return Attempt(
            read.key,
            Take(
                read.token,
                urandom(TOKEN_BYTES).hex(),
                self.owner if owner is None else options.check_owner(owner),
                read.ttl if ttl is None else options.check_ttl(ttl),
                None if note is None else options.check_note(note),
            ),
        )

    def _unsealed(self, kind: Kind, ticket: str) -> Ticket:
        """What a ticket says. Its checksum is no seal: whoever passed it on may have changed it."""
        from holdfast.core.tickets import unseal

        self.check_usable()
        read = unseal(kind, ticket)
        try:
            options.check_key(read.key, self.max_key_bytes)
            options.check_ttl(read.ttl / SECOND)
        except (BadKey, BadOption):
            raise BadTicket from None
        return read

    def share(self, hold: Hold, *, release: bool) -> str:
        """A ticket for a second party."""
        from holdfast.core.tickets import Ticket, seal

        self.check_held(hold)
        if options.check_switch(release, "release"):
            self._check_may_end(hold)
        ticket = Ticket(hold.key, hold.token, hold.fence, hold.ttl, release)
        hold.shared = True
        return seal("share", ticket)

    # --- the life of a hold -----------------------------------------------------------------

    def keep(self, hold: Hold) -> None:
        """Adopt a hold in the middle of an acquire_all."""
        self._adopting[hold.token] = self.adopt(hold, "Acquired")

    def adopted(self, attempt: Attempt) -> Any:
        """The lease that such an attempt has got."""
        return self._adopting.pop(attempt.claimed)

    def disown(self, attempts: Sequence[Attempt]) -> None:
        """An acquire_all failed: end what it had got, which its `undo` then frees."""
        for attempt in attempts:
            lease = self._adopting.pop(attempt.claimed, None)
            if lease is not None and self.keeper.end(lease.hold, "released"):
                self.ended(lease.hold, "Gave back")

    def adopt(self, hold: Hold, how: str) -> Any:
        """Make the lease and look after it."""
        lease = self.make_lease(hold)
        self.check_usable()
        self.keeper.add(hold)
        if self.on_event is not None or logger.isEnabledFor(logging.INFO):
            self.emit(
                events.Acquired(
                    hold.key, hold.owner, hold.fence, hold.holder.mode, hold.waited, how
                )
            )
        return lease

    def begin_release(self, hold: Hold) -> Attempt | None:
        """End a hold. What is then to be done in the store; None: nothing."""
        if self.forked or not self.keeper.end(hold, "released"):
            return None
        if not hold.care.may_release:
            self.ended(hold, "Left")
            return None
        return Attempt(hold.key, Free(hold.token), NO_BEAT, touched=True)

    def finish_release(self, hold: Hold, freed: bool) -> None:
        """Tell how the release went."""
        if freed:
            self.ended(hold, "Released")
        else:
            hold.was_gone()
            self.lost(hold)

    def begin_hand_over(self, hold: Hold, ttl: Seconds | None) -> tuple[Attempt, str]:
        """End a hold. What is then to be done in the store, and the ticket for the next one."""
        from holdfast.core.tickets import Ticket, seal

        self.check_usable()
        self.check_held(hold)
        self._check_may_end(hold)
        wait = hold.ttl if ttl is None else options.check_ttl(ttl)
        ticket = Ticket(hold.key, urandom(TOKEN_BYTES).hex(), hold.fence, hold.ttl)
        attempt = Attempt(hold.key, Offer(hold.token, ticket.token, wait), touched=True)
        if not self.keeper.end(hold, "handed over"):
            self.check_held(hold)
        return attempt, seal("hand-over", ticket)

    def ended(self, hold: Hold, how: str) -> None:
        """Tell that a hold ended by its holder's will."""
        if self.on_event is not None or logger.isEnabledFor(logging.INFO):
            held_for = clock.monotonic() - hold.acquired
            self.emit(events.Released(hold.key, hold.owner, hold.fence, held_for, how))

    def held(self, hold: Hold) -> bool:
        """Whether this is surely ours at this moment."""
        return hold.valid(clock.monotonic()) and not self.forked

    def check_held(self, hold: Hold) -> None:
        """Raise `LeaseLost` unless this is surely ours at this moment."""
        if not self.held(hold):
            why = self.why(hold)
            raise LeaseLost(
                f"The lease on {hold.key!r} is not yours: {why}.", key=hold.key, why=why
            )

    def _check_may_end(self, hold: Hold) -> None:
        if not hold.care.may_release:
            raise UsageError(
                f"The lease on {hold.key!r} was joined without the right to end it: ask for a "
                f"ticket from share(release=True)."
            )

    def why(self, hold: Hold) -> str:
        """Why a hold is not valid, in words."""
        if self.forked:
            return "it belongs to the parent process"
        if hold.state == "held":
            return "it could not be renewed in time"
        return hold.why or f"it was {hold.state}"

    def beat(self, holds: Sequence[Hold]) -> Sequence[Exception | None]:
        """Renew these, for the keeper."""
        outcomes: Sequence[Exception | None]
        if len(holds) > 1 and self.facts.batch > 1:
            outcomes = self._beat_many(holds)
        else:
            outcomes = [self._beat_one(hold) for hold in holds]
        for hold, outcome in zip(holds, outcomes, strict=True):
            if outcome is not None and not isinstance(outcome, LeaseLost):
                expected = isinstance(outcome, HoldfastError)
                why = str(outcome) if expected else f"{type(outcome).__name__}: {outcome}"
                self.emit(events.StoreTrouble(hold.key, why, "renew"))
        return outcomes

    def _beat_many(self, holds: Sequence[Hold]) -> Sequence[Exception | None]:
        try:
            return self.driver.run(renew_many_steps(self.observations, holds))
        except Exception:  # one of them went wrong in an odd way: which?
            return [self._beat_one(hold) for hold in holds]

    def _beat_one(self, hold: Hold) -> Exception | None:
        try:
            self.driver.run(renew_steps(self.observations, hold))
        except Exception as trouble:
            return trouble
        return None

    # --- what the keeper tells (see keeping.Listener) ---------------------------------------

    def in_danger(self, hold: Hold) -> None:
        """Renewals have been failing."""
        remaining = max(0, hold.deadline - clock.monotonic())
        self.emit(events.InDanger(hold.key, hold.owner, hold.fence, remaining))
        self._tell(hold, "danger")

    def out_of_danger(self, hold: Hold) -> None:
        """A renewal went through again."""
        self.emit(events.OutOfDanger(hold.key, hold.owner, hold.fence))

    def lost(self, hold: Hold) -> None:
        """It is no longer ours. The lease is told first, then the log."""
        self._tell(hold, "lost")
        self.emit(events.Lost(hold.key, hold.owner, hold.fence, hold.why))

    def wanted(self, hold: Hold) -> None:
        """Somebody waits for it."""
        waiters = tuple(anonymous(waiter) for waiter in hold.wanted)
        self.emit(events.Wanted(hold.key, hold.owner, hold.fence, waiters))
        self._tell(hold, "wanted")

    def dropped(self, hold: Hold) -> None:
        """Nobody refers to the lease any more."""
        self.emit(events.Lost(hold.key, hold.owner, hold.fence, hold.why))

    def _tell(self, hold: Hold, what: str) -> None:
        if hold.signals is not None:
            hold.signals.tell(what)

    def evicted(self, key: str, holders: Sequence[Holder]) -> None:
        """An operator threw these out."""
        self.emit(events.Evicted(key, tuple(anonymous(holder) for holder in holders)))

    def emit(self, event: Event) -> None:
        """Tell the log and the listener. A listener's mistake is logged, not passed on."""
        try:
            log_event(event)
            if self.on_event is not None:
                self.on_event(event)
        except Exception:
            logger.exception("A listener of Holdfast events failed")
