"""`@exclusive(key="audience:{filter_id}")`: a task that runs only while it holds a lock."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from celery import Task, current_app

from holdfast.api.guard import Guarded, Within
from holdfast.api.leases import Lease
from holdfast.api.options import Seconds, check_fair, check_mode, check_note, check_ttl, micros
from holdfast.errors import BadOption, Busy, TicketRefused, UsageError
from holdfast.integrations.celery.busy_policy import (
    BusyPolicy,
    Countdown,
    WhenBusy,
    check_busy,
    check_countdown,
)
from holdfast.integrations.celery.children import add_source, reported
from holdfast.integrations.celery.clients import LocksSource, locks_for
from holdfast.integrations.celery.handover import check_ticket, hand_to_next, ticket_for
from holdfast.integrations.celery.owner_note import note_of, owner_of, running_task

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger("holdfast")


def exclusive(
    key: str | Callable[..., str],
    *,
    busy: WhenBusy = "wait",
    ttl: Seconds | None = None,
    timeout: Seconds | None = None,
    countdown: Countdown = 10.0,
    max_retries: int | None = None,
    mode: str | None = None,
    limit: int | None = None,
    fair: bool | None = None,
    max_hold: Seconds | None = None,
    note: dict[str, Any] | None = None,
    hand_over: bool | Seconds = False,
    take_from: str | None = None,
    late: Literal["acquire", "fail"] = "acquire",
    url: str | None = None,
    locks: LocksSource | None = None,
) -> Callable[[F], F]:
    """Run a task only while it holds a lock. It goes under `@app.task`, also with `bind=True`.

    key          a template over the task's arguments, or a function of them
    busy         when the lock is taken: `wait`, `retry`, `skip`, `ignore` or `raise`
    ttl          how long the lock outlives a worker that was killed; it is renewed while
                 the task runs
    timeout      how long to wait before it counts as taken: for ever with `wait`, else not
                 at all
    countdown    with `retry`: after how many seconds; or a function of the retries so far
    max_retries  with `retry`: how many times; by default the task's own `max_retries`
    mode, limit, fair, max_hold, note
                 as in `Locks.acquire`
    hand_over    when the task ends well, give the lease to the next one in the chain or to
                 its callback; a number is for how many seconds the lock waits for it
    take_from    the argument in which a ticket comes, if it does not come in a header
    late         when that ticket is no longer good: `acquire` like anybody, or `fail`
    url, locks   where the locks are, if not at `app.conf.holdfast_url`; `locks` may be a
                 function that makes them, which is called once in each process
    """
    if late not in ("acquire", "fail"):
        raise BadOption(f"late is 'acquire' or 'fail', not {late!r}.")
    if url is not None and locks is not None:
        raise BadOption("Give url or locks, not both.")
    patience = timeout if timeout is not None or busy == "wait" else 0
    acquiring = {
        "ttl": ttl, "mode": mode, "limit": limit, "fair": fair,
        "max_hold": max_hold, "timeout": patience,
    }  # fmt: skip
    _check(acquiring, note, hand_over)
    policy = BusyPolicy(check_busy(busy), check_countdown(countdown), max_retries)

    def decorate(function: F) -> F:
        guard = _Guard(function, key, note or {}, take_from, late, hand_over)
        source = add_source(url, locks)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            task = running_task()
            app = current_app if task is None else task.app
            claim = _Claim(guard, task, locks_for(app, url, locks), args, kwargs)
            try:
                lease = claim.enter(acquiring)
            except Busy as error:
                return policy.result(task, error)
            with lease, Within(lease):
                with reported(source, lease):
                    result = function(*args, **kwargs)
                guard.pass_on(task, lease)
            return result

        run.exclusive = True  # type: ignore[attr-defined]

        # Celery checks a call's arguments against this before it sends the message.
        run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return run  # type: ignore[return-value]

    return decorate


def _check(
    acquiring: dict[str, Any], note: dict[str, Any] | None, hand_over: bool | Seconds
) -> None:
    """Raise where the decorator is written, and not when the task first runs."""
    check_mode(acquiring["mode"], acquiring["limit"])
    check_fair(acquiring["fair"])
    if acquiring["ttl"] is not None:
        check_ttl(acquiring["ttl"])
    for name in ("max_hold", "timeout"):
        if acquiring[name] is not None:
            micros(acquiring[name], name)
    if note is not None:
        check_note(note)
    if not isinstance(hand_over, bool):
        check_ttl(hand_over)


def _from_template(function: Callable[..., Any], template: str) -> Callable[..., str]:
    guarded = Guarded(function, template, "wait")
    return lambda *args, **kwargs: guarded.key(args, kwargs)


class _Guard:
    """The options and the signature of one task, the same for all its runs."""

    def __init__(
        self, function: Callable[..., Any], key: str | Callable[..., str], note: dict[str, Any],
        take_from: str | None, late: str, hand_over: bool | Seconds,
    ) -> None:  # fmt: skip
        if not callable(function):
            raise UsageError("@exclusive needs a key: @exclusive(key=...).")
        if isinstance(function, Task):
            raise UsageError("@exclusive goes under @app.task, next to the function.")
        if inspect.iscoroutinefunction(function):
            raise UsageError("Celery does not run async functions, and neither does @exclusive.")
        self.signature = inspect.signature(function)
        if take_from is not None and take_from not in self.signature.parameters:
            raise BadOption(f"take_from={take_from!r} is not an argument of the task.")
        self.key = key if callable(key) else _from_template(function, key)
        self.note = note
        self.take_from = take_from
        self.late = late
        self._hand_over = hand_over

    def pass_on(self, task: Any, lease: Lease) -> None:
        """Give the lease to the next task, if that is asked for and the task has not done it."""
        if self._hand_over is not False and lease.held:
            within = None if self._hand_over is True else self._hand_over
            hand_to_next(task, lease, within)


class _Claim:
    """Acquires or takes over the lease of one run."""

    def __init__(
        self, guard: _Guard, task: Any, locks: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        bound = guard.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        self._guard = guard
        self._locks = locks
        self._key = guard.key(*args, **kwargs)
        self._ticket = ticket_for(task, bound.arguments, guard.take_from)
        self._who = {"owner": owner_of(task), "note": note_of(task, guard.note)}

    def enter(self, acquiring: dict[str, Any]) -> Lease:
        """Returns the lease that was handed over, or acquires one."""
        if self._ticket is not None:
            try:
                return self._take(acquiring)
            except TicketRefused:
                if self._guard.late == "fail":
                    raise
                logger.info(
                    "The ticket for %s is no longer good; the lock is acquired anew", self._key
                )
        lease: Lease = self._locks.acquire(self._key, **acquiring, **self._who)
        return lease

    def _take(self, acquiring: dict[str, Any]) -> Lease:
        assert self._ticket is not None
        check_ticket(self._ticket, self._key)
        lease: Lease = self._locks.take(
            self._ticket, ttl=acquiring["ttl"], max_hold=acquiring["max_hold"], **self._who
        )
        return lease
