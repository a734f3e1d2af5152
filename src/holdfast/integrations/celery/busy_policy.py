"""What a task does when somebody else holds its lock.

    wait     waits in its worker slot, up to `timeout`, then fails with `AcquireTimeout`
    retry    goes back to the broker with Celery's own retry, and comes again after `countdown`
    skip     succeeds at once with a marker as its result: see `was_skipped`
    ignore   ends with Celery's `Ignore`: no result, nothing that follows is started
    raise    fails with `Busy`

There is one more case: the holder may be an earlier run of the same task. A worker died and the
broker delivered the message again before the ttl was over, or a retry arrived before the first
run had quite ended. To skip or to fail would then lose the work for good, so the task is sent
again soon, whatever its policy is, until the lock is free.
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
    """Returns the policy's name if there is such a one."""
    if busy not in get_args(WhenBusy):
        raise BadOption(f"busy is one of {', '.join(get_args(WhenBusy))}, not {busy!r}.")
    return busy  # type: ignore[no-any-return]


def check_countdown(countdown: Any) -> Countdown:
    """Returns seconds, or a function that makes them from the number of retries so far."""
    if callable(countdown):
        return countdown  # type: ignore[no-any-return]
    return micros(countdown, "countdown") / SECOND  # Celery knows no timedelta here


def was_skipped(result: Any) -> bool:
    """Whether this is the result of a task that was skipped because its lock was busy."""
    return isinstance(result, dict) and result.get(MARK) == SKIPPED


def skipped(error: Busy) -> dict[str, Any]:
    """Returns the result of a skipped task: plain JSON that names the holders."""
    return {MARK: SKIPPED, "key": error.key, "held_by": sorted({h.owner for h in error.holders})}


class BusyPolicy:
    """What one task does when its lock is busy."""

    def __init__(self, busy: WhenBusy, countdown: Countdown, max_retries: int | None) -> None:
        self._busy = busy
        self._countdown = countdown
        self._max_retries = max_retries

    def result(self, task: Any, error: Busy) -> dict[str, Any]:
        """Returns the task's result, or raises what Celery understands: `Retry`, `Ignore` or an
        error."""
        earlier = _earlier_run(task, error)
        if earlier is not None:
            logger.info(
                "An earlier delivery of this task may still be running, so it is tried again "
                "soon: %s",
                error,
            )
            countdown = earlier.ttl / SECOND / BEATS_PER_TTL
            _send_again(task, error, countdown, task.request.retries)
        if task is None or self._busy in ("wait", "raise"):
            raise _without_holders(error) from None
        if self._busy == "retry":
            self._retry(task, error)
        logger.info("Skipping %s: %s", task.name, error)
        if self._busy == "ignore":
            raise Ignore(str(error))
        return skipped(error)

    def _retry(self, task: Any, error: Busy) -> NoReturn:
        retries = task.request.retries
        most = task.max_retries if self._max_retries is None else self._max_retries
        if task.request.called_directly or (most is not None and retries >= most):
            raise _without_holders(error) from None
        _send_again(task, error, self._seconds(retries), retries + 1)

    def _seconds(self, retries: int) -> float:
        return self._countdown(retries) if callable(self._countdown) else self._countdown


def _earlier_run(task: Any, error: Busy) -> Holder | None:
    """Returns the holder that is an earlier run of this very task, if there is one."""
    if task is None or task.request.id is None or task.request.is_eager:
        return None
    for holder in error.holders:
        if holder.note.get("task_id") == task.request.id:
            return holder
    return None


def _send_again(task: Any, error: Busy, countdown: float, retries: int) -> NoReturn:
    """Send the task again and end this run of it, as `Task.retry` does. `Task.retry` itself always
    counts a retry, and leaves the `max_retries` that it is given on the task, where `autoretry_for`
    finds it."""
    again = task.signature_from_request(countdown=countdown, retries=retries)
    ends = Retry(
        exc=_without_holders(error), when=countdown, is_eager=task.request.is_eager, sig=again
    )
    if not task.request.is_eager:  # else Celery runs it when this run has ended
        try:
            again.apply_async()
        except Exception as trouble:
            raise Reject(trouble, requeue=False) from trouble
    raise ends from None


def _without_holders(error: Busy) -> Busy:
    """Returns the same error without the holders: a result backend must not see their tokens."""
    return type(error)(str(error), key=error.key)
