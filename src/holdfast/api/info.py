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
    """Somebody who holds a lock."""

    key: str
    owner: str
    mode: Mode
    limit: int | None
    fence: int
    acquired_at: datetime
    ttl: float
    remaining: float | None  # seconds until it runs out unless renewed; None: no clock
    note: Note
    waiting: int  # how many wait for it
    offered: bool  # between two parties: handed over and not yet taken
    age: float = 0.0  # seconds since it was acquired, as well as this machine can tell


class WaiterInfo(Struct, frozen=True):
    """Somebody who waits for a lock, in the order of their turn."""

    key: str
    owner: str
    mode: Mode
    limit: int | None
    since: datetime


class PastInfo(Struct, frozen=True):
    """How somebody's grant of a lock ended without being released."""

    key: str
    what: Literal["expired", "evicted", "handed over"]
    at: datetime  # when that was noticed
    owner: str
    fence: int
    since: datetime  # when it was acquired
    by: str  # the operator who evicted it, or who took it over
    reason: str  # the operator's


class LockInfo(Struct, frozen=True):
    """A lock as it was seen. `fault` is set if its record cannot be read. `history` are the last
    few holders that did not release it by themselves, the latest last."""

    key: str
    fence: int
    holders: tuple[HolderInfo, ...]
    waiters: tuple[WaiterInfo, ...]
    fault: str | None = None
    history: tuple[PastInfo, ...] = ()

    @property
    def free(self) -> bool:
        """Whether nobody holds it."""
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
