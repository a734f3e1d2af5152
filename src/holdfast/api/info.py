"""Locks as people and programs see them: without tokens, with times as datetimes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from msgspec import Struct

from holdfast.core.contract import Interval
from holdfast.core.listing import LockView
from holdfast.core.records import SECOND, Happening, Holder, Micros, Mode, Note, Waiter
from holdfast.runtime import clock


class HolderInfo(Struct, frozen=True):
    """Somebody who holds a lock.

    key          the name of the lock
    owner        the holder's name, for people
    mode         `exclusive`, `shared` or `counted`
    limit        of a counted lock: how many holders there may be
    fence        the holder's fence
    acquired_at  when it acquired the lock, on the store's clock
    ttl          how many seconds the lease outlives its last renewal
    remaining    in how many seconds it runs out unless renewed; None if the store has no clock
    note         the note that it gave
    waiting      how many wait for the lock
    offered      whether it was handed over and not yet taken
    age          for how many seconds it has held the lock, as well as this machine can tell
    """

    key: str
    owner: str
    mode: Mode
    limit: int | None
    fence: int
    acquired_at: datetime
    ttl: float
    remaining: float | None
    note: Note
    waiting: int
    offered: bool
    age: float = 0.0


class WaiterInfo(Struct, frozen=True):
    """Somebody who waits for a lock.

    key    the name of the lock
    owner  the waiter's name, for people
    mode   `exclusive`, `shared` or `counted`
    limit  of a counted lock: how many holders there may be
    since  since when it waits, on the store's clock
    """

    key: str
    owner: str
    mode: Mode
    limit: int | None
    since: datetime


class PastInfo(Struct, frozen=True):
    """A lease that ended without being released.

    key     the name of the lock
    what    how it ended: `expired`, `evicted` or `handed over`
    at      when that was noticed
    owner   the holder's name, for people
    fence   the holder's fence
    since   when it had acquired the lock
    by      the operator who evicted it, or who took the lease over
    reason  the operator's reason
    """

    key: str
    what: Literal["expired", "evicted", "handed over"]
    at: datetime
    owner: str
    fence: int
    since: datetime
    by: str
    reason: str


class LockInfo(Struct, frozen=True):
    """A lock as it was seen.

    key      its name
    fence    the largest fence that its holders may use
    holders  who holds it: `HolderInfo`
    waiters  who waits for it, in the order of their turn: `WaiterInfo`
    fault    why its record cannot be read; None if it can
    history  the last few leases that ended without being released, the latest last: `PastInfo`
    """

    key: str
    fence: int
    holders: tuple[HolderInfo, ...]
    waiters: tuple[WaiterInfo, ...]
    fault: str | None = None
    history: tuple[PastInfo, ...] = ()

    @property
    def free(self) -> bool:
        """Whether nobody holds the lock."""
        return not self.holders and self.fault is None


def lock_info(seen: LockView) -> LockInfo:
    """Returns a lock for people."""
    waiting = len(seen.waiters)
    return LockInfo(
        seen.key,
        seen.fence,
        tuple(holder_info(seen.key, holder, seen.now, waiting) for holder in seen.holders),
        tuple(waiter_info(seen.key, waiter) for waiter in seen.waiters),
        seen.fault,
        tuple(_past_info(seen.key, happening) for happening in seen.history),
    )


def _past_info(key: str, past: Happening) -> PastInfo:
    return PastInfo(
        key,
        past.what,
        moment(past.at),
        past.owner,
        past.fence,
        moment(past.since),
        past.by,
        past.why,
    )


def holder_info(key: str, holder: Holder, now: Interval | None, waiting: int) -> HolderInfo:
    """Returns a holder for people."""
    return HolderInfo(
        key,
        holder.owner,
        holder.mode,
        holder.limit,
        holder.fence,
        moment(holder.acquired_at),
        holder.ttl / SECOND,
        _remaining(holder, now),
        dict(holder.note),
        waiting,
        holder.offered,
        _age(holder, now),
    )


def waiter_info(key: str, waiter: Waiter) -> WaiterInfo:
    """Returns a waiter for people."""
    return WaiterInfo(key, waiter.owner, waiter.mode, waiter.limit, moment(waiter.since))


def _remaining(holder: Holder, now: Interval | None) -> float | None:
    if now is None or not holder.expires_at:
        return None
    return max(0, holder.expires_at - now.earliest) / SECOND


def _age(holder: Holder, now: Interval | None) -> float:
    at = clock.wall() if now is None else now.latest
    return max(0, at - holder.acquired_at) / SECOND


# The last day that every time zone can show.
_LAST = datetime(9999, 12, 30, tzinfo=UTC)


def moment(at: Micros) -> datetime:
    """Returns a time on the store's clock as a datetime, at most the last day of the calendar."""
    try:
        return min(datetime.fromtimestamp(at / SECOND, UTC), _LAST)
    except (OverflowError, ValueError, OSError):
        return _LAST
