"""A TCP proxy on loopback that loses what it is told to lose."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any, Literal, Self

from tests.engines.base import free_port

Mode = Literal[
    "pass",  # as if it were not there
    "drop requests",  # nothing that clients say arrives
    "drop replies",  # what clients say is carried out, and nobody tells them
    "reset replies",  # the same, and then the connection is reset
    "halve replies",  # half a reply arrives, and then the connection is reset
    "refuse",  # new connections are closed at once
]


class Proxy:
    """Between clients and the server at a port. Its own is `port`; `mode` may be set anytime."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.mode: Mode = "pass"
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self.requests = 0  # how many messages clients have sent

    def __enter__(self) -> Self:
        started = threading.Event()
        self._started = started
        self._thread.start()
        assert started.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def count(self, data: bytes) -> int:
        """How many requests there are in what a client sent at once."""
        return 1

    def lead_to(self, target: int) -> None:
        """From now on, lead new connections elsewhere."""
        self._target = target

    def cut(self) -> None:
        """Reset every connection."""
        self._loop.call_soon_threadsafe(self._abort_all)

    def _abort_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        await self._open()
        self._started.set()
        await self._stop.wait()
        self._shut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", self.port)

    def _shut(self) -> None:
        self._server.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        server: asyncio.StreamWriter | None = None
        try:
            if self.mode != "refuse":
                replies, server = await asyncio.open_connection("127.0.0.1", self._target)
                self._writers.add(server)
                await asyncio.gather(
                    self._pump(reader, server, "requests"), self._pump(replies, writer, "replies")
                )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for side in (writer, server):
                if side is not None:
                    self._writers.discard(side)
                    side.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: str
    ) -> None:
        while data := await reader.read(65536):
            mode = self.mode  # once: it may be set anew as soon as a reply was passed on
            if what == "requests":
                self.requests += self.count(data)
            if mode == f"drop {what}":
                continue
            if mode == "reset replies" and what == "replies":
                raise ConnectionResetError
            halved = mode == "halve replies" and what == "replies"
            writer.write(data[: len(data) // 2] if halved else data)
            with suppress(ConnectionError):
                await writer.drain()
            if halved:
                break
        raise ConnectionResetError
