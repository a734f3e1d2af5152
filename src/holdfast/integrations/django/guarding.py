"""`guard` for views, tasks and functions, blocking or async.

It is `Locks.guard` on the locks of the settings, with two differences for views, which are called
with an `HttpRequest` (or with one inside, by Django REST framework):

1. A view that is skipped answers 409: Django would refuse None.
2. ATOMIC_REQUESTS would commit after the lock is free again, and the next holder would not see
   what this one wrote. So the transaction is begun inside of the lock.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ParamSpec, TypeVar, overload

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from holdfast.api import locks as blocking
from holdfast.api import locks_async
from holdfast.api.guard import OnBusy, OrElse
from holdfast.integrations.django.clients import lazy, lazy_aio

P = ParamSpec("P")
R = TypeVar("R")


@overload
def guard(
    key: str, *, busy: OrElse = "wait", **options: Any
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@overload
def guard(
    key: str, *, busy: OnBusy, **options: Any
) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...
def guard(key: str, *, busy: OnBusy = "wait", **options: Any) -> Any:
    """Run a view, a task or any function under a lock whose key is made from its arguments.

    If the lock is taken, `busy` decides: `wait` waits, `raise` raises `Busy`, and `skip` returns
    None, or the status 409 if it is a view. Other options are those of `acquire`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):
            return locks_async.guard_with(lazy_aio, key, busy, options, _skipped)(function)
        guarded = blocking.guard_with(lazy, key, busy, options, _skipped)(_with_atomic(function))
        for alias in _atomic_requests():
            guarded = transaction.non_atomic_requests(using=alias)(guarded)
        return guarded

    return decorate


def _skipped(*args: Any, **kwargs: Any) -> HttpResponse | None:
    if not _is_view(args):
        return None
    # Not who holds it: that is for the log.
    headers = {"Content-Type": "text/plain", "Retry-After": "1"}
    return HttpResponse("Busy: try again later.\n", status=409, headers=headers)


def _is_view(args: tuple[Any, ...]) -> bool:
    """Whether these are the arguments of a view, or of a method of a view class. Django REST
    framework calls its views with an object around the request."""
    return any(
        isinstance(arg, HttpRequest) or isinstance(getattr(arg, "_request", None), HttpRequest)
        for arg in args[:2]
    )


def _with_atomic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function that Django would call for a request, with its transactions."""
    aliases = _atomic_requests() - getattr(function, "_non_atomic_requests", set())
    if not aliases:
        return function

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as transactions:
            for alias in aliases if _is_view(args) else ():
                transactions.enter_context(transaction.atomic(using=alias))
            return function(*args, **kwargs)

    return run


def _atomic_requests() -> set[str]:
    """Returns the databases that have it. (Views are loaded when the settings are; a function may
    be loaded earlier.)"""
    found = settings.DATABASES.items() if settings.configured else ()
    return {alias for alias, database in found if database.get("ATOMIC_REQUESTS")}
