"""The awaitable that `acquire` of the asyncio face returns."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.api.leases_async import Lease, Leases

L = TypeVar("L", bound="Lease | Leases")


class Acquiring(Coroutine[Any, Any, L]):
    """Await it for the lease, or enter it with `async with`.

    It is a coroutine, so that it can become a task. As with any coroutine, a forgotten `await` is
    a warning when the object goes: the caller would work without the lock.
    """

    __slots__ = ("_acquire", "_awaited", "_entered", "_got", "_started")

    def __init__(self, acquire: Callable[[], Coroutine[Any, Any, L]]) -> None:
        self._acquire = acquire
        self._got: L | None = None
        self._awaited = False
        self._entered = False
        self._started: Coroutine[Any, Any, L] | None = None

    def __del__(self) -> None:
        if not self._awaited:
            warnings.warn(
                "An acquire was never awaited: nothing is locked. Use `async with` or `await`.",
                RuntimeWarning,
                stacklevel=2,
            )

    def __await__(self) -> Generator[Any, Any, L]:
        self._awaited = True
        return self._acquire().__await__()

    def send(self, value: Any) -> Any:
        """Part of the coroutine protocol."""
        return self._coroutine().send(value)

    def throw(self, *exc: Any) -> Any:
        """Part of the coroutine protocol."""
        return self._coroutine().throw(*exc)

    def close(self) -> None:
        """Part of the coroutine protocol."""
        self._awaited = True  # or given up on purpose
        if self._started is not None:
            self._started.close()

    def _coroutine(self) -> Coroutine[Any, Any, L]:
        self._awaited = True
        if self._started is None:
            self._started = self._acquire()
        return self._started

    async def __aenter__(self) -> L:
        if self._entered:  # with two entries it would not be known which lease an exit is for
            raise UsageError("This acquire() is in use: call acquire() for each block.")
        self._awaited = self._entered = True
        try:
            self._got = await self._acquire()
        except BaseException:
            self._entered = False
            raise
        self._got._begin_block()
        return self._got

    def __aexit__(self, *exc: Any) -> Coroutine[Any, Any, None]:
        assert self._got is not None
        self._entered = False
        return self._got.__aexit__(*exc)
