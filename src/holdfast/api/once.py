# Made from once_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""`locks.once(…)`: one call, from the first look for the result to the result. See `core.once`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.api.options import Seconds
from holdfast.core.caller_effects import Find, Make, Raised, TryAcquire, WaitUntilFree
from holdfast.core.effects import Emit, Now, Sleep
from holdfast.core.once import once_steps
from holdfast.core.records import SECOND
from holdfast.errors import UsageError
from holdfast.runtime import clock
from holdfast.runtime.local_effects import Handlers
from holdfast.runtime.run import run

if TYPE_CHECKING:
    from holdfast.api.leases import Lease
    from holdfast.api.locks import Locks

import time

# A wait of no time at all would be a look, and `Busy` instead of `AcquireTimeout`.
SHORTEST_WAIT_S = 0.001


class OnceCall:
    """One caller that wants a result."""

    def __init__(
        self,
        locks: Locks,
        key: str,
        find: Callable[[], Any],
        make: Callable[[Lease], Any],
        timeout: Seconds | None,
        options: dict[str, Any],
    ) -> None:
        self._locks = locks
        self._here = locks._here()
        self._wait = self._here.requests.wait(key, timeout)
        self._key = key
        self._user_find = check_function(find, "find")
        self._user_make = check_function(make, "make")
        self._options = options
        self._lease: Lease | None = None

    def result(self) -> Any:
        """Returns the result, found or made."""
        at_once: Handlers = {
            Now: clock.monotonic,
            Emit: lambda asked: self._here.sinks.emit(asked.event),
        }
        awaited: Handlers = {
            Find: self._find,
            TryAcquire: self._try_acquire,
            WaitUntilFree: self._wait_until_free,
            Make: self._make,
            Sleep: self._sleep,
        }
        try:
            return run(once_steps(self._wait), at_once, awaited)
        finally:
            if self._lease is not None:
                self._lease._leave()

    def _left(self) -> float | None:
        """Returns how many seconds of the caller's time are left; None: any number."""
        if self._wait.ends_at is None:
            return None
        left = self._wait.ends_at - clock.monotonic()
        return max(left / SECOND, SHORTEST_WAIT_S if self._wait.timeout else 0.0)

    def _find(self, asked: Find) -> Any:
        try:
            return call(self._user_find)
        except Exception as raised:
            return Raised(raised)

    def _try_acquire(self, asked: TryAcquire) -> Lease | None:
        self._lease = self._locks.try_acquire(self._key, **self._options)
        return self._lease

    def _wait_until_free(self, asked: WaitUntilFree) -> None:
        self._locks.wait_until_free(self._key, self._left())

    def _make(self, asked: Make) -> Any:
        try:
            self._user_make(asked.lease)
        except Exception as raised:
            return Raised(raised)

    def _sleep(self, asked: Sleep) -> None:
        time.sleep(asked.duration / SECOND)


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the user's. In asyncio it may be async or not."""
    return function(*arguments)


def check_function(function: Any, name: str) -> Callable[..., Any]:
    """A function of the user's that this face can call."""
    if not callable(function):
        raise UsageError(f"{name} is a function, not {function!r}.")
    checked: Callable[..., Any] = function
    _check_blocking(checked, name)
    return checked


def _check_blocking(function: Callable[..., Any], name: str) -> None:
    if inspect.iscoroutinefunction(function):
        raise UsageError(f"{name} is an async function: use holdfast.aio's locks for it.")
