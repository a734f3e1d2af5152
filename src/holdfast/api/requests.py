"""Turns the arguments of callers into the attempts and terms that the core's steps work on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from os import urandom
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.api import options
from holdfast.api.options import Seconds
from holdfast.core.acquiring import Terms, may_inherit, place_ttl_for
from holdfast.core.commands import Claim, Offer, Renew, Take
from holdfast.core.contract import Facts
from holdfast.core.discreet import hidden
from holdfast.core.holds import Attempt, Care, Hold
from holdfast.core.records import SECOND, Micros
from holdfast.core.steps import BEAT_BYTES, TOKEN_BYTES
from holdfast.core.waiting import BoundedWait
from holdfast.errors import BadKey, BadOption, BadTicket
from holdfast.runtime import clock

if TYPE_CHECKING:
    from holdfast.core.tickets import Kind, Ticket

NO_NOTE: dict[str, Any] = {}  # shared: no code changes a note
_numbers = count(1)  # the attempts of this process


class Requests:
    """Checks the arguments of calls to one client, and fills in its defaults."""

    def __init__(
        self,
        facts: Facts,
        check_usable: Callable[[], None],
        *,
        owner: str | None,
        ttl: Seconds,
        store_patience: Seconds | None,
        request_timeout: Seconds,
        long_wait: Seconds | None,
    ) -> None:
        self._facts = facts
        self._max_key_bytes = facts.max_key_bytes
        self._check_usable = check_usable
        self.owner = options.default_owner() if owner is None else options.check_owner(owner)
        self.ttl = options.check_ttl(ttl)
        self.store_patience = options.check_patience(store_patience)
        self.request_timeout = options.check_request_timeout(request_timeout)
        self.long_wait = None if long_wait is None else options.micros(long_wait, "long_wait")
        # Most calls share one of these.
        self._waits = Terms(
            None, None, self.store_patience, Care(), self.request_timeout, self.long_wait
        )
        self._tries = replace(self._waits, timeout=0)

    def key(self, key: str) -> str:
        """Returns a checked key."""
        self._check_usable()
        return options.check_key(key, self._max_key_bytes)

    def claim(
        self, key: str, ttl: Seconds | None, mode: str | None, limit: int | None,
        owner: str | None, note: dict[str, Any] | None, terms: Terms,
    ) -> Attempt:  # fmt: skip
        """Returns an attempt to claim a key, with a new token."""
        key = self.key(key)
        checked_mode, checked_limit = options.check_mode(mode, limit)
        checked_ttl = self.ttl if ttl is None else options.check_ttl(ttl)
        scripted = self._facts.scripted
        # Decided here for the usual case, it saves `acquire_steps` a copy of the claim.
        queue = scripted and terms.fair is not False and terms.timeout != 0
        checked_owner = self.owner if owner is None else options.check_owner(owner)
        checked_note = NO_NOTE if note is None else options.check_note(note)
        # After all checks: the traceback of an error might show it.
        drawn = urandom(TOKEN_BYTES + BEAT_BYTES).hex()
        claim = Claim(
            drawn[: 2 * TOKEN_BYTES],
            checked_owner,
            checked_mode,
            checked_ttl,
            checked_limit,
            checked_note,
            queue,
            place_ttl_for(checked_ttl, 0, scripted) if queue else 0,
            queue and may_inherit(checked_mode, checked_note),
        )
        return Attempt(key, claim, drawn[2 * TOKEN_BYTES :], number=next(_numbers))

    def terms(
        self, timeout: Seconds | None, fair: bool | None, keep: bool, max_hold: Seconds | None
    ) -> Terms:
        """Returns how a claim waits and how its lease is looked after."""
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
            self.request_timeout,
            self.long_wait,
        )

    def answers_by(self) -> Micros:
        """Returns by when a call that begins now, and does not wait for a lock, must be back."""
        return clock.monotonic() + self.request_timeout

    def care(self, keep: bool, max_hold: Seconds | None) -> Care:
        """Returns how a lease is to be looked after."""
        options.check_switch(keep, "keep")
        bound = None if max_hold is None else options.micros(max_hold, "max_hold")
        return Care(keep, bound)

    def leading_terms(self, watchdog: Seconds | None) -> Terms:
        """Returns how a candidate for leadership waits and how its lease is looked after. It takes
        its place in the queue at once, so that leaders follow each other in order."""
        bound = None if watchdog is None else options.micros(watchdog, "watchdog")
        # Not to lead is no wait to worry about.
        care = Care(watchdog=bound)
        return Terms(None, True, self.store_patience, care, self.request_timeout, long_wait=None)

    def wait(self, key: str, timeout: Seconds | None) -> BoundedWait:
        """Returns a wait for a lock that is not claimed."""
        return BoundedWait(
            self.key(key),
            self.owner,
            None if timeout is None else options.micros(timeout, "timeout"),
            self.store_patience,
            clock.monotonic(),
            request_timeout=self.request_timeout,
            long_wait=self.long_wait,
        )

    def join(self, ticket: str, keep: bool, max_hold: Seconds | None) -> tuple[Attempt, Care, int]:
        """Returns the attempt to join a shared lease, how the lease is looked after, and its
        fence."""
        read = self._unsealed("share", ticket)
        care = replace(self.care(keep, max_hold), may_release=read.may_release, joined=True)
        number = next(_numbers)
        attempt = Attempt(read.key, Renew(read.token), number=number, trace=read.trace)
        return attempt, care, read.fence

    def take(
        self, ticket: str, owner: str | None, ttl: Seconds | None, note: dict[str, Any] | None
    ) -> Attempt:
        """Returns the attempt to take a lease that was handed over."""
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
            number=next(_numbers),
            trace=read.trace,
        )

    def _unsealed(self, kind: Kind, ticket: str) -> Ticket:
        """Returns what a ticket contains, checked: its checksum does not prove who made it."""
        from holdfast.core.tickets import unseal

        self._check_usable()
        read = unseal(kind, ticket)
        try:
            options.check_key(read.key, self._max_key_bytes)
            options.check_ttl(read.ttl / SECOND)
        except (BadKey, BadOption):
            raise BadTicket from None
        return read


def hand_over_ticket(hold: Hold, ttl: Seconds | None, trace: str) -> tuple[Attempt, str]:
    """Returns the attempt to offer a lease, and the ticket for the next party."""
    from holdfast.core.tickets import Ticket, seal

    wait = hold.ttl if ttl is None else options.check_ttl(ttl)
    ticket = Ticket(hold.key, urandom(TOKEN_BYTES).hex(), hold.fence, hold.ttl, trace=trace)
    attempt = Attempt(hold.key, Offer(hold.token, ticket.token, wait), touched=True)
    return attempt, hidden(seal("hand-over", ticket))


def share_ticket(hold: Hold, *, release: bool, trace: str) -> str:
    """Returns a ticket for a second party."""
    from holdfast.core.tickets import Ticket, seal

    ticket = Ticket(hold.key, hold.token, hold.fence, hold.ttl, release, trace)
    return seal("share", ticket)
