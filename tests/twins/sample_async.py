"""Use it in an `async with` block."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.runtime.flavour import ASYNC

if ASYNC:
    import asyncio
else:
    import time


class Sample:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        if not ASYNC:
            self.asked = 100

    async def ask(self, what: str) -> str:
        """Wait a little, as an answer does."""
        if ASYNC:
            await asyncio.sleep(0)
        else:
            time.sleep(0)
        self.asked += 1
        return f"{{{what}}} {self.asked}"

    async def each(self, *whats: str) -> AsyncIterator[str]:
        """One answer after the other."""
        for what in whats:
            yield await self.ask(what)

    async def __aenter__(self) -> Sample:
        return self

    async def __aexit__(self, *exc: object) -> None:
        name = "a task" if ASYNC else "a thread"
        self.last = name


async def all_of(*whats: str) -> list[str]:
    """Their answers."""
    async with Sample() as sample:
        return [answer.upper() async for answer in sample.each(*whats)]
