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
from holdfast.errors import AcquireTimeout, UsageError
from holdfast.runtime import clock
from holdfast.runtime.flavour import ASYNC
from holdfast.runtime.local_effects import Handlers
from holdfast.runtime.run_async import run

if TYPE_CHECKING:
    from holdfast.api.leases_async import Lease
    from holdfast.api.locks_async import Locks

if ASYNC:
    import asyncio

    from holdfast.api.cancel_when_lost import Cancellable
else:
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

    async def result(self) -> Any:
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
            return await run(once_steps(self._wait), at_once, awaited)
        finally:
            if self._lease is not None:
                await self._lease._leave()

    def _left(self) -> float | None:
        """Returns how many seconds of the caller's time are left; None: any number."""
        if self._wait.ends_at is None:
            return None
        left = self._wait.ends_at - clock.monotonic()
        return max(left / SECOND, SHORTEST_WAIT_S if self._wait.timeout else 0.0)

    async def _find(self, asked: Find) -> Any:
        try:
            return await call(self._user_find)
        except Exception as raised:
            return Raised(raised)

    async def _try_acquire(self, asked: TryAcquire) -> Lease | None:
        self._lease = await self._locks.try_acquire(self._key, **self._options)
        return self._lease

    async def _wait_until_free(self, asked: WaitUntilFree) -> None:
        await self._locks.wait_until_free(self._key, self._left())

    async def _make(self, asked: Make) -> Any:
        try:
            if ASYNC:
                await self._make_in_time(asked.lease)
            else:
                self._user_make(asked.lease)
        except Exception as raised:
            return Raised(raised)

    if ASYNC:

        async def _make_in_time(self, lease: Lease) -> None:
            """Make the result. A loss of the lease, or the end of the caller's time, cancels it.
            (A timeout of 0 means: do not wait for others.)"""
            left = self._left() or None
            try:
                async with asyncio.timeout(left) as limit, Cancellable(lease):
                    await call(self._user_make, lease)
            except TimeoutError as late:
                if not limit.expired():
                    raise
                raise AcquireTimeout(
                    f"The result for {self._key!r} was not made in time: its maker was cancelled.",
                    key=self._key,
                ) from late

    async def _sleep(self, asked: Sleep) -> None:
        if ASYNC:
            await asyncio.sleep(asked.duration / SECOND)
        else:
            time.sleep(asked.duration / SECOND)


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the user's. In asyncio it may be async or not."""
    if ASYNC:
        outcome = function(*arguments)
        return await outcome if inspect.isawaitable(outcome) else outcome
    else:
        return function(*arguments)


def check_function(function: Any, name: str) -> Callable[..., Any]:
    """A function of the user's that this face can call."""
    if not callable(function):
        raise UsageError(f"{name} is a function, not {function!r}.")
    checked: Callable[..., Any] = function
    if not ASYNC:
        _check_blocking(checked, name)
    return checked


if not ASYNC:

    def _check_blocking(function: Callable[..., Any], name: str) -> None:
        if inspect.iscoroutinefunction(function):
            raise UsageError(f"{name} is an async function: use holdfast.aio's locks for it.")
