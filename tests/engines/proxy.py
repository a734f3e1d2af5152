"""A TCP proxy on loopback that loses requests or replies, or hangs up, when it is told to."""

from __future__ import annotations

import asyncio
import threading
from typing import Literal

Mode = Literal[
    "pass",
    "drop requests",  # nothing reaches the server any more
    "drop replies",  # the server does as it is told, and nobody hears of it
    "reset",  # every connection is cut, and every new one at once
]


class Proxy:
    """Between a client and a server. Use it as a context manager."""

    def __init__(self, target_port: int) -> None:
        self._target = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.mode: Mode = "pass"
        self.port = 0

    def __enter__(self) -> Proxy:
        self._thread.start()
        self.port = self._run(self._open())
        return self

    def __exit__(self, *exc: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def set(self, mode: Mode) -> None:
        """From now on."""
        self.mode = mode
        if mode == "reset":
            self._run(self._cut())

    def _run(self, coroutine: object) -> int:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)  # type: ignore[arg-type,var-annotated]
        return future.result(10) or 0

    async def _open(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode == "reset":
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        for source, sink, lost in (
            (reader, back, "drop requests"),
            (there, writer, "drop replies"),
        ):
            task = asyncio.ensure_future(self._pump(source, sink, lost))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, lost: str
    ) -> None:
        try:
            while data := await source.read(65536):
                if self.mode != lost:
                    sink.write(data)
        except OSError:
            pass
        finally:
            sink.close()

    async def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
