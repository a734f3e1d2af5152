"""What is done otherwise in threads and on an event loop; all else is written once.

On an event loop the code that follows runs in a greenlet of SQLAlchemy's, which gives way to
the loop wherever a thread would block.
"""

from __future__ import annotations

import asyncio
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from sqlalchemy.util import await_only, greenlet_spawn

from holdfast.stores.spin import SpinWait
from holdfast.stores.sql.deadlines import Deadlines, Limits, LoopDeadlines

R = TypeVar("R")

# For so long an answer is looked for, before it is slept for.
MOMENT_S = 0.0006


class Waiter(Protocol):
    """Where somebody waits for a wire, or for room for a new one (None)."""

    def put(self, wire: Any) -> None:
        """Here it is."""

    def get(self, block: bool, timeout: float) -> Any:
        """Raises `queue.Empty` when the time is over."""


class Way(ABC):
    """How to wait: in a thread, or on an event loop."""

    @abstractmethod
    def limits(self, seconds: float) -> Limits:
        """What ends a call that gets no answer."""

    @abstractmethod
    def nap(self, seconds: float) -> None:
        """Do nothing for a while."""

    @abstractmethod
    def open(self, connect: Callable[[], R]) -> R:
        """Connect, within a time."""

    @abstractmethod
    def finish(self, returned: Any) -> Any:
        """What a call of the driver results in."""

    @abstractmethod
    def waiter(self) -> Waiter:
        """Somewhere to wait for a wire."""

    @abstractmethod
    def glances(self, alone: Callable[[], bool]) -> SpinWait | None:
        """How to look for an answer before waiting for it, if at all."""


class Threads(Way):
    """Calls that block."""

    def limits(self, seconds: float) -> Limits:
        return Deadlines(seconds)

    def nap(self, seconds: float) -> None:
        time.sleep(seconds)

    def open(self, connect: Callable[[], R]) -> R:
        return connect()

    def finish(self, returned: Any) -> Any:
        return returned

    def waiter(self) -> Waiter:
        return queue.SimpleQueue()

    def glances(self, alone: Callable[[], bool]) -> SpinWait | None:
        return SpinWait(MOMENT_S, alone)


class Loop(Way):
    """Calls that give way to an event loop."""

    def __init__(self, timeout_s: float) -> None:
        self._connect_s = 2 * timeout_s

    def limits(self, seconds: float) -> Limits:
        return LoopDeadlines(seconds)

    def nap(self, seconds: float) -> None:
        await_only(asyncio.sleep(seconds))

    def open(self, connect: Callable[[], R]) -> R:
        async def in_time() -> R:
            async with asyncio.timeout(self._connect_s):
                return await greenlet_spawn(connect)

        return await_only(in_time())

    def finish(self, returned: Any) -> Any:
        return await_only(returned)

    def waiter(self) -> Waiter:
        return LoopWaiter()

    def glances(self, alone: Callable[[], bool]) -> SpinWait | None:
        return None  # a loop has other things to do


class LoopWaiter:
    """A place for one task."""

    def __init__(self) -> None:
        self._put = asyncio.get_running_loop().create_future()

    def put(self, wire: Any) -> None:
        """Here it is."""
        self._put.set_result(wire)

    def get(self, block: bool, timeout: float) -> Any:
        """Raises `queue.Empty` when the time is over."""
        if not self._put.done():
            await_only(asyncio.wait({self._put}, timeout=timeout))
        if not self._put.done():
            raise queue.Empty
        return self._put.result()
