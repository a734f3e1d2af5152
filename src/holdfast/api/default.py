# Made from default_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""`guard` without a client: it uses one that is made when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from holdfast.api import store_source
from holdfast.api.guard import OnBusy, OrElse
from holdfast.api.locks import Locks, connect, guard_with
from holdfast.runtime import fork_hooks

P = ParamSpec("P")
R = TypeVar("R")


class LazyLocks:
    """Locks that are made when they are first needed, once per process. Its attributes are theirs;
    a call returns the locks themselves."""

    def __init__(self, make: Callable[[], Locks]) -> None:
        self._make = make
        self._locks: Locks | None = None
        self._made_on: object = None  # the store of a test that was behind `make`

    def __call__(self) -> Locks:
        with fork_hooks.one_at_a_time():
            if self._made_on is not None and self._made_on is not store_source.instead:
                self.forget()
            if self._locks is None:
                self._locks, self._made_on = self._make(), store_source.instead
            return self._locks

    def forget(self) -> None:
        """Close the locks, if there are any. The next use makes new ones."""
        with fork_hooks.one_at_a_time():
            locks, made_on = self._locks, self._made_on
            self._locks = self._made_on = None
            if locks is not None:
                locks._client.end()
                if made_on is None:  # else the store is the test's
                    locks._client.store.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # tools that look at modules ask for such names of everything
            raise AttributeError(name)
        return getattr(self(), name)


@overload
def guard(
    key: str, *, busy: OrElse = "wait", **options: Any
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@overload
def guard(
    key: str, *, busy: OnBusy, **options: Any
) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...
def guard(key: str, *, busy: OnBusy = "wait", **options: Any) -> Any:
    """Run a function under a lock whose key is made from its arguments.

    As `Locks.guard`, on the store of `connect()` without arguments: $HOLDFAST_URL, or else an
    SQLite file of this user on this machine. The process connects when a guarded function is
    first called, once for all of them.
    """
    return guard_with(_default_locks, key, busy, options)


_default_locks = LazyLocks(lambda: connect())
