"""Once: many want one result, and one of them makes it. Pure; the faces and the simulator run it.

1. Look for the result first: usually it is there, and no lock is touched.
2. Try for the lock. Whoever does not get it waits until it is free, without a claim to it, and
   looks again: the result is what everybody waits for, not the lock.
3. Whoever gets the lock looks once more before it makes anything. What it saw before the grant is
   old: the maker before it may have published in between.
4. Only what a look shows is the result, for its maker too. So a maker that lost its lease gets
   what the others get; if there is nothing, it learns of its loss.
5. A store that is away is tried again for as long as `store_patience` and the caller's time last.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

from holdfast.core.caller_effects import (
    FIND,
    TRY_ACQUIRE,
    WAIT_UNTIL_FREE,
    Find,
    Make,
    TryAcquire,
    WaitUntilFree,
)
from holdfast.core.effects import Effect, Sleep
from holdfast.core.records import SECOND, Micros
from holdfast.core.waiting import BoundedWait
from holdfast.errors import (
    LeaseLost,
    NothingPublished,
    OutcomeUnknown,
    StaleFence,
    Unavailable,
)

R = TypeVar("R")
# A lock that nobody holds can still be kept for those who queue for it. A call that is refused
# again although the lock was free pauses, longer each time, between these two.
FIRST_PAUSE: Micros = 10_000
LONGEST_PAUSE: Micros = SECOND // 4


OnceEffect: TypeAlias = Find | TryAcquire | WaitUntilFree | Make | Effect
OnceSteps: TypeAlias = Generator[OnceEffect, Any, R]


def once_steps(wait: BoundedWait) -> OnceSteps[Any]:
    """Returns the result that everybody gets. Whoever runs this releases the lease it was given,
    however this ends. `wait` knows the key, and how long to go on while the store is away."""
    pause = 0
    while True:
        found = yield from FIND
        if found is not None:
            return found
        try:
            lease = yield from TRY_ACQUIRE
        except (Unavailable, OutcomeUnknown) as trouble:
            yield from wait.ride_out_steps(trouble, "acquire")
            continue
        wait.trouble_since = None
        if lease is not None:
            return (yield from _make_steps(wait.key, lease))
        if pause:
            yield from Sleep(pause)
        pause = min(2 * pause or FIRST_PAUSE, LONGEST_PAUSE)
        yield from WAIT_UNTIL_FREE


def _make_steps(key: str, lease: Any) -> OnceSteps[Any]:
    found = yield from FIND
    if found is not None:
        return found
    lost: LeaseLost | StaleFence | None = None
    try:
        yield from Make(lease)
    except (LeaseLost, StaleFence) as why:  # the second, if its successor has published already
        lost = why
    found = yield from FIND
    if found is not None:
        return found
    raise lost or NothingPublished(
        f"make() for {key!r} has returned, and find() still finds nothing: make() must publish its "
        f"result where find() looks for it."
    )
