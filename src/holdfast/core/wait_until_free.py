"""Waiting until nobody holds a lock, without a claim to it.

A call that only watches takes no place in the queue and notifies nobody. It loads the record,
waits until the store says that the key may have changed or until a holder may have expired, and
loads again. Where the store notifies, it tells of every release that leaves a lock free. Elsewhere
the record is loaded now and then, ever more rarely: the end of work that has run for an hour may
be noticed a few seconds late.
"""

from __future__ import annotations

from holdfast.core.acquiring import LOOK_AGAIN_UNQUEUED
from holdfast.core.effects import Emit, Steps
from holdfast.core.events import Waiting
from holdfast.core.listing import LockView, show_view
from holdfast.core.observations import Observations, View
from holdfast.core.records import SECOND, Micros
from holdfast.core.steps import look_steps
from holdfast.core.waiting import BoundedWait
from holdfast.errors import OutcomeUnknown, Unavailable

# The next load comes after this part of the time waited so far, within bounds.
PART_OF_WAIT = 10
LOOK_AGAIN_AT_LAST: Micros = 10 * SECOND
# Nobody in the queue has this token, so a watcher is notified when anyone may be let in.
WATCHER = "watcher"


def wait_until_free_steps(observations: Observations, wait: BoundedWait) -> Steps[LockView]:
    """Returns the lock as it was seen free, or raises `Busy` or `AcquireTimeout`."""
    while True:
        try:
            view = yield from look_steps(observations, wait.key, wait.answers_by)
        except (Unavailable, OutcomeUnknown) as trouble:
            yield from wait.ride_out_steps(trouble, "look at")
            continue
        wait.trouble_since = None
        seen = show_view(observations, wait.key, view)
        if not seen.holders:
            return seen
        yield from _sleep_steps(observations, wait, view, seen)


def _sleep_steps(
    observations: Observations, wait: BoundedWait, view: View, seen: LockView
) -> Steps[None]:
    now = view.got
    frees_at = max(
        observations.dead_from(wait.key, holder, view.now, now) for holder in seen.holders
    )

    def waiting(at: Micros) -> Waiting:
        return wait.waiting(seen.holders, (), 0, frees_at, at)

    yield from Emit(waiting(now))
    if wait.out_of_time(now):
        raise wait.not_free(seen.holders, 0)
    pause = min(max(LOOK_AGAIN_UNQUEUED, (now - wait.started) // PART_OF_WAIT), LOOK_AGAIN_AT_LAST)
    wakes_at = min(now + pause, frees_at)
    yield from wait.wait_steps(view.version, WATCHER, now, wakes_at, waiting)
