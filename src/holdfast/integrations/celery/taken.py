"""What a task does when the lock is somebody else's.

    wait     waits in its worker slot, up to `timeout`, then fails with `AcquireTimeout`
    retry    goes back to the broker with Celery's own retry, and comes again after `countdown`
    skip     succeeds at once with a marker as its result: see `was_skipped`
    ignore   ends with Celery's `Ignore`: no result, nothing that follows is started
    raise    fails with `Busy`

One case is none of these: the holder may be this very task. A worker died and the broker
delivered the message again before the ttl was over, or a retry came back before the first
run had quite ended. Skipping or failing would then lose the work for good, so the task
comes again soon, whatever it does otherwise, until the lock is free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from celery.exceptions import Ignore, Reject, Retry

from holdfast.api.options import micros
from holdfast.core.holds import BEATS_PER_TTL
from holdfast.core.records import SECOND, Holder
from holdfast.errors import BadOption, Busy

logger = logging.getLogger("holdfast")

WhenBusy: TypeAlias = Literal["wait", "retry", "skip", "ignore", "raise"]
Countdown: TypeAlias = float | Callable[[int], float]

MARK = "holdfast"
SKIPPED = "skipped"


def check_busy(busy: Any) -> WhenBusy:
    """One of the words above."""
    if busy not in get_args(WhenBusy):
        raise BadOption(f"busy is one of {', '.join(get_args(WhenBusy))}, not {busy!r}.")
    return busy  # type: ignore[no-any-return]


def check_countdown(countdown: Any) -> Countdown:
    """Seconds, or a function that makes them from the number of retries so far."""
    if callable(countdown):
        return countdown  # type: ignore[no-any-return]
    return micros(countdown, "countdown") / SECOND  # Celery knows no timedelta here


def was_skipped(result: Any) -> bool:
    """Whether this is the result of a task that was skipped, because its lock was taken."""
    return isinstance(result, dict) and result.get(MARK) == SKIPPED


def skipped(taken: Busy) -> dict[str, Any]:
    """The result of a skipped task: plain JSON, with whose lock it was."""
    return {MARK: SKIPPED, "key": taken.key, "held_by": sorted({h.owner for h in taken.holders})}


class WhenTaken:
    """One task's way with a lock that is taken."""

    def __init__(self, busy: WhenBusy, countdown: Countdown, max_retries: int | None) -> None:
        self._busy = busy
        self._countdown = countdown
        self._max_retries = max_retries

    def result(self, task: Any, taken: Busy) -> dict[str, Any]:
        """The task's result, or what Celery takes for one: `Retry`, `Ignore` or an error."""
        own = _own_run(task, taken)
        if own is not None:
            logger.info("An earlier delivery of this task may still run, so again soon: %s", taken)
            _come_again(task, taken, own.ttl / SECOND / BEATS_PER_TTL, task.request.retries)
        if task is None or self._busy in ("wait", "raise"):
            raise _shareable(taken) from None
        if self._busy == "retry":
            self._retry(task, taken)
        logger.info("Skipping %s: %s", task.name, taken)
        if self._busy == "ignore":
            raise Ignore(str(taken))
        return skipped(taken)

    def _retry(self, task: Any, taken: Busy) -> NoReturn:
        retries = task.request.retries
        most = task.max_retries if self._max_retries is None else self._max_retries
        if task.request.called_directly or (most is not None and retries >= most):
            raise _shareable(taken) from None
        _come_again(task, taken, self._seconds(retries), retries + 1)

    def _seconds(self, retries: int) -> float:
        return self._countdown(retries) if callable(self._countdown) else self._countdown


def _own_run(task: Any, taken: Busy) -> Holder | None:
    if task is None or task.request.id is None or task.request.is_eager:
        return None
    for holder in taken.holders:
        if holder.note.get("task_id") == task.request.id:
            return holder
    return None


def _come_again(task: Any, taken: Busy, countdown: float, retries: int) -> NoReturn:
    """Send the task again, and end this run of it, as `Task.retry` does. But that always counts,
    and leaves the `max_retries` that it is given behind on the task, for `autoretry_for` to find.
    """
    again = task.signature_from_request(countdown=countdown, retries=retries)
    ends = Retry(exc=_shareable(taken), when=countdown, is_eager=task.request.is_eager, sig=again)
    if not task.request.is_eager:  # else Celery runs it when this one has ended
        try:
            again.apply_async()
        except Exception as trouble:
            raise Reject(trouble, requeue=False) from trouble
    raise ends from None


def _shareable(taken: Busy) -> Busy:
    """The same without the holders: a result backend must not get to see their tokens."""
    return type(taken)(str(taken), key=taken.key)
