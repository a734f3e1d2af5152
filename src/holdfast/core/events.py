"""What happens to a client's leases, for logs, progress displays and metrics.

No event carries a token or a ticket.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.core.records import Holder, Micros, Mode, Waiter

Reason = Literal["busy", "timeout", "interrupted", "error"]


class Started(Struct, frozen=True):
    """Somebody asks for a lock, or comes with a ticket. `Acquired` or `GaveUp` follows, with the
    same attempt."""

    key: str
    owner: str
    mode: Mode
    attempt: int


class Acquired(Struct, frozen=True):
    """A lease was granted, joined or taken over."""

    key: str
    owner: str
    fence: int
    mode: Mode
    waited: Micros = 0
    how: str = "Acquired"
    attempt: int = 0


class GaveUp(Struct, frozen=True):
    """An attempt ended without a lease."""

    key: str
    owner: str
    why: Reason
    attempt: int


class Waiting(Struct, frozen=True):
    """A claim must wait, or would have to. Sent again each time it goes on waiting."""

    key: str
    owner: str
    holders: tuple[Holder, ...]
    ahead: tuple[Waiter, ...]
    waited: Micros
    frees_in: Micros | None  # when the first of them runs out, unless it is renewed
    news: bool = True  # the holders are others than the last time
    more: int = 0  # how many more are ahead than are shown
    attempt: int = 0  # 0: it only waits until the lock is free


class StoreTrouble(Struct, frozen=True):
    """The store failed, and it is tried again; or not, and the ttl will free the lock."""

    key: str
    error: str
    doing: str
    again: bool = True


class Released(Struct, frozen=True):
    """A lease ended by its holder's will."""

    key: str
    owner: str
    fence: int
    held_for: Micros
    how: str = "Released"


class InDanger(Struct, frozen=True):
    """Renewals have been failing; the lease runs out in `remaining`."""

    key: str
    owner: str
    fence: int
    remaining: Micros


class OutOfDanger(Struct, frozen=True):
    """A renewal went through again."""

    key: str
    owner: str
    fence: int


class Lost(Struct, frozen=True):
    """A lease ended against its holder's will."""

    key: str
    owner: str
    fence: int
    why: str


class Wanted(Struct, frozen=True):
    """Somebody waits for a lease that we hold."""

    key: str
    owner: str
    fence: int
    waiters: tuple[Waiter, ...]


class Evicted(Struct, frozen=True):
    """An operator threw these out."""

    key: str
    holders: tuple[Holder, ...]


Event: TypeAlias = (
    Started
    | Acquired
    | GaveUp
    | Waiting
    | StoreTrouble
    | Released
    | InDanger
    | OutOfDanger
    | Lost
    | Wanted
    | Evicted
)
