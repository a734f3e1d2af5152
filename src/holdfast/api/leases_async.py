"""The leases of the asyncio face, and what `acquire` returns before there is one."""

from __future__ import annotations

import asyncio
import functools
import inspect
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

from holdfast.api.lease_base import LeaseBase, LeasesBase, graver
from holdfast.api.options import Seconds
from holdfast.core.events import StoreTrouble
from holdfast.core.holds import Hold
from holdfast.core.renewing import renew_steps
from holdfast.core.steps import offer_steps, release_steps
from holdfast.errors import HoldfastError, LeaseLost, UsageError
from holdfast.observe.log import printable
from holdfast.runtime import clock
from holdfast.runtime.client import PATIENCE, Client, logger
from holdfast.runtime.driver_async import AsyncDriver

L = TypeVar("L", bound="Lease | Leases")


class Lease(LeaseBase[asyncio.Event]):
    """A lock that is ours for now. Use it in an `async with` block, or call `release()`.

    If the block ends well but the lease was lost on the way, `LeaseLost` is raised at its
    end; an exception of the block itself is never replaced. Renewal runs in a thread, so
    that a blocked event loop does not cost the lease; `lost` and the callbacks come on the
    loop.
    """

    __slots__ = ("_driver", "_loop")

    def __init__(self, client: Client, driver: AsyncDriver, hold: Hold) -> None:
        super().__init__(client, hold)
        self._driver = driver
        self._loop = asyncio.get_running_loop()

    async def renew(self) -> None:
        """Renew it now; `LeaseLost` if it is gone. The keeper does this by itself."""
        client, hold = self._client, self._hold
        client.check_usable()
        client.check_held(hold)
        try:
            await self._driver.run(renew_steps(client.observations, hold))
        except LeaseLost as lost:
            client.keeper.lose(hold, lost.why)
            raise

    async def release(self) -> bool:
        """Give it back. False: there was nothing (left) to give back. May be repeated.

        If the store cannot be reached for a while this raises, and the ttl frees the lock.
        """
        client, hold = self._client, self._hold
        attempt = client.begin_release(hold)
        if attempt is None:
            return False
        now = clock.monotonic()
        try:
            freed = await self._driver.run(
                release_steps(client.observations, attempt, now, now + PATIENCE)
            )
        except HoldfastError:
            raise
        except BaseException:
            await self._driver.undo((attempt,))
            raise
        client.finish_release(hold, freed)
        return freed

    async def hand_over(self, *, ttl: Seconds | None = None) -> str:
        """Give it up for whoever brings the returned ticket to `take()`, with a new fence.

        It is no longer ours from here on, whatever happens. If nobody comes within `ttl`
        (by default the lease's own), the lock is free.
        """
        client, hold = self._client, self._hold
        attempt, ticket = client.begin_hand_over(hold, ttl)
        try:
            await self._driver.run(
                offer_steps(client.observations, attempt, clock.monotonic() + PATIENCE)
            )
        except BaseException:
            await self._driver.undo((attempt,))
            raise
        client.ended(hold, "Handed over")
        return ticket

    async def __aenter__(self) -> Lease:
        self.check()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.release()
        except HoldfastError as trouble:
            # The work was protected to its end; only the lock stays until its ttl.
            self._client.emit(StoreTrouble(self.key, str(trouble), "release", again=False))
        if exc_type is None and self._hold.state == "lost":
            self.check()

    def _new_event(self) -> asyncio.Event:
        return asyncio.Event()

    def _set_event(self, event: asyncio.Event) -> None:
        if asyncio._get_running_loop() is self._home():
            event.set()  # whoever asks now sees it now
        else:
            self._on_loop(event.set)

    def _call(self, callback: Callable[..., Any]) -> None:
        self._on_loop(functools.partial(_call_back, callback, self))

    def _home(self) -> asyncio.AbstractEventLoop:
        """The loop on which it was acquired; once that is closed, the one where its client is."""
        follows = self._driver.loop if self._loop.is_closed() else None
        return self._loop if follows is None else follows

    def _on_loop(self, call: Callable[[], Any]) -> None:
        try:
            self._home().call_soon_threadsafe(call)
        except RuntimeError:
            logger.debug("The event loop of the lease on %s is closed", printable(self.key))


_callback_tasks: set[asyncio.Task[None]] = set()  # asyncio itself keeps them only weakly


def _call_back(callback: Callable[[Lease], Any], lease: Lease) -> None:
    async def run() -> None:
        try:
            outcome = callback(lease)
            if inspect.isawaitable(outcome):
                await outcome
        except Exception:
            logger.exception("A callback of the lease on %s failed", printable(lease.key))

    task = asyncio.ensure_future(run())
    _callback_tasks.add(task)
    task.add_done_callback(_callback_tasks.discard)


class Leases(LeasesBase[Lease]):
    """Several leases, acquired together: a sequence in the order in which they were asked
    for, and a context manager that releases them all. `leases["key"]` works too."""

    async def release(self) -> None:
        """Give them all back."""
        await self._each(lambda lease: lease.release())

    async def __aenter__(self) -> Leases:
        self.check()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._each(lambda lease: lease.__aexit__(exc_type, None, None))

    async def _each(self, call: Callable[[Lease], Awaitable[object]]) -> None:
        """For all of them, though one fails or we are cancelled; then say so."""
        trouble: BaseException | None = None
        for lease in reversed(self._leases):
            try:
                await call(lease)
            except BaseException as exc:
                trouble = graver(trouble, exc)
        if trouble is not None:
            raise trouble


class Acquiring(Coroutine[Any, Any, L]):
    """What `acquire` returns: await it for the lease, or enter it with `async with`.

    It is a coroutine, so that it can be made a task. As with any other, a forgotten `await` is
    told when it goes: the caller would go on without the lock.
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
        """For whoever runs it as a coroutine."""
        return self._coroutine().send(value)

    def throw(self, *exc: Any) -> Any:
        """For whoever runs it as a coroutine."""
        return self._coroutine().throw(*exc)

    def close(self) -> None:
        """For whoever runs it as a coroutine."""
        self._awaited = True  # or given up on purpose
        if self._started is not None:
            self._started.close()

    def _coroutine(self) -> Coroutine[Any, Any, L]:
        self._awaited = True
        if self._started is None:
            self._started = self._acquire()
        return self._started

    async def __aenter__(self) -> L:
        if self._entered:  # we could not tell who leaves first, and with which lease
            raise UsageError("This acquire() is in use: call acquire() for each block.")
        self._awaited = self._entered = True
        try:
            self._got = await self._acquire()
        except BaseException:
            self._entered = False
            raise
        return self._got

    def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> Coroutine[Any, Any, None]:
        assert self._got is not None
        self._entered = False
        return self._got.__aexit__(exc_type, exc, trace)
