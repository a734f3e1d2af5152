"""Commands that can be applied to a record, and the verdicts of the rules. Plain data.

A store that runs a whole command in one trip gets these very objects.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from holdfast.core.records import Discreet, Holder, Micros, Mode, Note, Record, Waiter


class Claim(Discreet, frozen=True, gc=False):
    """Let me in; and if I must wait and `queue` is set, keep me a place in the queue."""

    token: str
    owner: str
    mode: Mode
    ttl: Micros
    limit: int | None = None
    note: Note = {}  # noqa: RUF012 (msgspec copies it)
    queue: bool = False
    patience: Micros = 0  # how long a place in the queue lasts without a sign of life
    inherits: bool = False  # the party that frees the lock may grant it to this place

    def holder(self, fence: int, at: Micros, expires_at: Micros, beat: str) -> Holder:
        """Returns the holder that this claim becomes when it is granted."""
        return Holder(
            self.token,
            fence,
            self.owner,
            self.mode,
            self.ttl,
            at,
            expires_at,
            beat,
            self.limit,
            self.note,
        )


class Renew(Discreet, frozen=True, gc=False):
    """Extend my grant by its ttl: I still hold it."""

    token: str
    known: Holder | None = None  # the grant as the asker knows it: a store may answer without it
    passed_on: Holder | None = None  # the lease to which the grant was passed on in its process


class Free(Discreet, frozen=True, gc=False):
    """Remove whatever this token has here, a grant or a place in the queue. If `heir` is the token
    of the first in the queue and wants the lock alone, it has the grant from then on."""

    token: str
    heir: str = ""


class Offer(Discreet, frozen=True, gc=False):
    """I give up my grant; the party that brings `ticket` within `ttl` may take it."""

    token: str
    ticket: str
    ttl: Micros


class Take(Discreet, frozen=True, gc=False):
    """I bring the ticket of an offered grant, and hold it from now on as `token`."""

    ticket: str
    token: str
    owner: str
    ttl: Micros
    note: Note | None = None  # None keeps the note of the party before


class Evict(Struct, frozen=True, gc=False):
    """An operator throws out the holders with these fences, and the waiters with these tokens;
    nobody who came later."""

    fences: tuple[int, ...]
    operator: str = ""
    reason: str = ""
    waiters: tuple[str, ...] = ()


Command: TypeAlias = Claim | Renew | Free | Offer | Take | Evict


# A long queue is told of only in part: an answer names no more waiters than this.
SHOWN = 16


class Granted(Struct, frozen=True, gc=False):
    """The token holds. `wanted` are the first of those who wait behind it. `last` is the last
    number that a new grant may use as a fence (see rule 3)."""

    holder: Holder
    wanted: tuple[Waiter, ...] = ()
    last: int = 0  # 0: none but its own


class Blocked(Struct, frozen=True, gc=False):
    """The claim must wait for these holders, and for these waiters ahead of it, and more."""

    holders: tuple[Holder, ...]
    ahead: tuple[Waiter, ...]
    queued: bool = False
    more: int = 0  # how many more are ahead than are shown

    def places(self) -> int:
        """Returns how many waiters are ahead."""
        return len(self.ahead) + self.more


class Mismatch(Struct, frozen=True, gc=False):
    """The live holders were granted with another limit."""

    limit: int


class NotHeld(Struct, frozen=True, gc=False):
    """The token has neither a grant nor a place in the queue here."""


class Freed(Struct, frozen=True, gc=False):
    """The token's grant or place in the queue is gone, by this command."""


FREED = Freed()


class Evicted(Struct, frozen=True, gc=False):
    """These were thrown out."""

    holders: tuple[Holder, ...]


Verdict: TypeAlias = Granted | Blocked | Mismatch | NotHeld | Freed | Evicted

# Whom a write may let in: nobody, these queued tokens, or anyone who waits.
Wake: TypeAlias = tuple[str, ...]
NOBODY: Wake = ()
ANYONE: Wake = ("*",)


class Decision(Discreet, frozen=True, gc=False):
    """What the rules decide: the verdict, and the record to write, or None to write nothing."""

    verdict: Verdict
    record: Record | None = None
    wake: Wake = NOBODY


class Stamp(Struct, frozen=True, gc=False):
    """What is new with every write: the time (its upper bound) and a nonce.

    `clocked` is False when the time is not the store's but only the client's guess. `reached`
    is what the store's clock has surely shown already, the floor of a new fence.
    """

    at: Micros
    beat: str
    clocked: bool = True
    reached: Micros | None = None  # None: as much as `at`

    def expiry(self, ttl: Micros) -> Micros:
        """The `expires_at` of a party written now; 0 where the store has no clock."""
        return self.at + ttl if self.clocked else 0
