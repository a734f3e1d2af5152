"""Locks as the page and its API show them: plain JSON, times in seconds since 1970 as this machine
has them. No token is in it, because none is in what `list()` yields."""

from __future__ import annotations

from typing import Any

from holdfast.api.info import HolderInfo, LockInfo, PastInfo, WaiterInfo

Json = dict[str, Any]


def lock_json(lock: LockInfo, now: float) -> Json:
    """Returns a lock that was seen at this time."""
    return {
        "key": lock.key,
        "fence": lock.fence,
        "fault": lock.fault,
        "holders": [_holder(holder, now) for holder in lock.holders],
        "waiters": [_waiter(waiter) for waiter in lock.waiters],
        "history": [_past(past) for past in lock.history],
    }


def _holder(holder: HolderInfo, now: float) -> Json:
    return {
        "owner": holder.owner,
        "mode": holder.mode,
        "limit": holder.limit,
        "fence": holder.fence,
        "since": round(now - holder.age, 3),
        "ttl": holder.ttl,
        "expires": None if holder.remaining is None else round(now + holder.remaining, 1),
        "note": holder.note,
        "offered": holder.offered,
    }


def _waiter(waiter: WaiterInfo) -> Json:
    return {
        "owner": waiter.owner,
        "mode": waiter.mode,
        "limit": waiter.limit,
        "since": waiter.since.timestamp(),
    }


def _past(past: PastInfo) -> Json:
    return {
        "what": past.what,
        "at": past.at.timestamp(),
        "owner": past.owner,
        "fence": past.fence,
        "since": past.since.timestamp(),
        "by": past.by,
        "reason": past.reason,
    }


def parties(lock: Json) -> tuple[Any, ...]:
    """Returns what counts as a change when it differs. Renewals do not."""
    holders = tuple((one["fence"], one["owner"], one["offered"]) for one in lock["holders"])
    waiters = tuple((one["owner"], one["since"]) for one in lock["waiters"])
    return lock["fence"], holders, waiters, lock["fault"]
