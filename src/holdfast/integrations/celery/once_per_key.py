"""`@once_per_key("report:{month}", into=results)`: later calls get the first one's result."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, TypeVar

from celery import Task, current_app

from holdfast.api.guard import Guarded, Within
from holdfast.api.leases import Lease
from holdfast.api.options import Seconds, check_note, check_ttl, micros
from holdfast.errors import BadOption, UsageError
from holdfast.integrations.celery.clients import LocksSource, locks_for
from holdfast.integrations.celery.owner_note import note_of, owner_of, running_task
from holdfast.results.base import Results

F = TypeVar("F", bound=Callable[..., Any])


def _place_of(into: Results | Callable[[], Results]) -> Callable[[], Results]:
    """Returns what gives the place for results, which is made on first use."""
    if isinstance(into, Results):
        return lambda: into
    made: dict[int, Results] = {}  # by process

    def place() -> Results:
        pid = os.getpid()
        if pid not in made:
            made[pid] = into()
        return made[pid]

    return place


def once_per_key(
    key: str,
    *,
    into: Results | Callable[[], Results],
    ttl: Seconds | None = None,
    timeout: Seconds | None = None,
    note: dict[str, Any] | None = None,
    url: str | None = None,
    locks: LocksSource | None = None,
) -> Callable[[F], F]:
    """Run a task once for each key: every call returns the result that the first one has made.

    It goes under `@app.task`, also with `bind=True`. A call that comes while another one is at
    work waits for it in its worker slot. A task that fails is run by the next call.

    key          a template over the task's arguments
    into         a place for results (`holdfast.results`), or a function that makes one, which is
                 called once in each process: connections must not be shared across a fork
    ttl          how long a worker that was killed keeps the others waiting
    timeout      how long to wait before `AcquireTimeout`
    note         as in `Locks.acquire`
    url, locks   where the locks are, as in `@exclusive`
    """
    if not isinstance(into, Results) and not callable(into):
        raise BadOption("into is a place for results, or a function that makes one.")
    if ttl is not None:
        check_ttl(ttl)
    if timeout is not None:
        micros(timeout, "timeout")
    if note is not None:
        check_note(note)
    place = _place_of(into)

    def decorate(function: F) -> F:
        if isinstance(function, Task):
            raise UsageError("@once_per_key goes under @app.task, next to the function.")
        guarded = Guarded(function, key, "wait")

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            task = running_task()
            app = current_app if task is None else task.app

            def make(lease: Lease) -> Any:
                with Within(lease):
                    return function(*args, **kwargs)

            return locks_for(app, url, locks).once(
                guarded.key(args, kwargs), make=make, into=place(), ttl=ttl, timeout=timeout,
                owner=owner_of(task), note=note_of(task, note or {}),
            )  # fmt: skip

        # Celery checks a call's arguments against this before it sends the message.
        run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return run  # type: ignore[return-value]

    return decorate
