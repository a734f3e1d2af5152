"""A proxy that harms one exchange, the n-th since it was armed, and lets all others pass.

An exchange is what a client says until it is answered, and the answer. They are counted over all
connections, those of a handshake too.

 1. A fault before the request: nobody at the server has seen it. A fault after it: the server
    has answered when the fault happens, so that what was asked is done.
 2. A reset is a reset (RST), and an end is an end (FIN): drivers tell them apart.
 3. What is late waits until the proxy is told to let it go; nobody has to guess how long a
    client is patient.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Literal

from tests.engines.proxy import Proxy
from tests.helpers import until

Fault = Literal[
    "refused",  # all connections are reset, and the port is closed until the proxy is healed
    "refused after",  # the request is carried out; instead of a reply, the same
    "reset before",  # the request is not passed on, and the connection is reset
    "closed before",  # the request is not passed on, and the connection ends in good order
    "reset after",  # the request is carried out, and the connection is reset instead of a reply
    "closed",  # the request is carried out, and the connection ends instead of a reply
    "halved",  # half of the reply arrives, and the connection is reset
    "late reply",  # the request is carried out; the reply comes when the client has given up
    "late request",  # the request reaches the server when the client has given up
]

# How long to wait for the rest of a reply that comes in several pieces.
_REST_S = 0.02
_RESET = struct.pack("ii", 1, 0)  # for SO_LINGER: forget what was not sent, and send RST


class _Line:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.asked = False  # the client has spoken, and nobody has answered yet
        self.answered = asyncio.Event()
        self.fault: Fault | None = None

    def reset(self) -> None:
        """Break it off."""
        if not self.client.transport.is_closing():
            ours = self.client.get_extra_info("socket")
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.client.transport.abort()


class OneFaultProxy(Proxy):
    """`arm` it, make a call, `heal` it. `fired` says whether the call got as far."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        # Keeps the port ours while nobody listens on it: connecting is refused then.
        self._place = _bound(0)
        self.port = self._place.getsockname()[1]
        self.fired = False
        self.exchanges = 0
        self._fault: Fault | None = None
        self._at = 0
        self._lines: set[_Line] = set()
        self._door: socket.socket | None = None  # None: nobody is let in
        self._let_go = asyncio.Event()
        self._late: set[_Line] = set()  # those with something that is late on its way
        self._calm = threading.Event()
        self._calm.set()

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self._place.close()

    # --- what a test says to it ---------------------------------------------------------------

    def arm(self, fault: Fault | None, at: int) -> None:
        """From now on count, and let this happen to the exchange with this number."""
        self._run_there(self._arm(fault, at))

    def heal(self) -> None:
        """No fault from now on. What is late stays late."""
        self._run_there(self._heal())

    def let_go(self) -> None:
        """What is late goes on its way now; returns when it has got where it goes."""
        self._loop.call_soon_threadsafe(self._let_go.set)
        assert self._calm.wait(20), "what was late did not arrive"

    def end_all(self, *, reset: bool = False) -> None:
        """As a server ends connections that were idle for too long; returns when it is done."""
        self._run_there(self._end_all(reset))
        self.wait_until_left()

    def wait_until_left(self) -> None:
        """Wait until everybody is gone, and what they said at last has been passed on."""
        until(lambda: not self._lines)

    def _run_there(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    # --- in its own thread --------------------------------------------------------------------

    async def _arm(self, fault: Fault | None, at: int) -> None:
        self._fault, self._at, self.exchanges, self.fired = fault, at, 0, False
        self._let_go = asyncio.Event()

    async def _heal(self) -> None:
        self._fault = None
        if self._door is None:
            await self._open()

    async def _end_all(self, reset: bool) -> None:
        for line in list(self._lines):
            line.reset() if reset else line.client.transport.close()

    # Not a server of asyncio's: that one forgets whom it has accepted while it was closed.
    async def _open(self) -> None:
        self._door = _bound(self.port)
        self._door.setblocking(False)
        self._door.listen(128)
        self._loop.add_reader(self._door, self._accept)

    def _shut(self) -> None:
        if self._door is not None:
            self._loop.remove_reader(self._door)
            self._door.close()
        self._door = None

    def _accept(self) -> None:
        assert self._door is not None
        with suppress(OSError):  # whoever knocked has gone again
            guest, _ = self._door.accept()
            guest.setblocking(False)
            self._tasks.add(self._loop.create_task(self._let_in(guest)))

    async def _let_in(self, guest: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            reader, writer = await asyncio.open_connection(sock=guest)
            if self._door is None:  # refused, after all
                _Line(writer).reset()
            else:
                await self._join(reader, writer)
        finally:
            self._tasks.discard(task)

    def _fate(self) -> Fault | None:
        self.exchanges += 1
        if self._fault is None or self.exchanges != self._at:
            return None
        self.fired = True
        return self._fault

    def _refuse(self) -> None:
        self._shut()
        for line in list(self._lines):
            line.reset()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = _Line(writer)
        self._lines.add(line)
        try:
            replies, line.server = await asyncio.open_connection("127.0.0.1", self._target)
            await self._both_ways(line, reader, replies)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._lines.discard(line)
            self._arrived(line)
            for side in (writer, line.server):
                if side is not None:
                    side.transport.abort()

    async def _both_ways(
        self, line: _Line, requests: asyncio.StreamReader, replies: asyncio.StreamReader
    ) -> None:
        ways = [
            asyncio.ensure_future(self._pass_requests(line, requests)),
            asyncio.ensure_future(self._pass_replies(line, replies)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if ways[0].done() and line.fault == "late request":
                # The client has gone; what it said is carried out all the same.
                with suppress(TimeoutError):
                    await asyncio.wait_for(line.answered.wait(), 5)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pass_requests(self, line: _Line, requests: asyncio.StreamReader) -> None:
        assert line.server is not None
        while data := await requests.read(65536):
            if not line.asked:
                line.asked = True
                line.answered.clear()
                line.fault = self._fate()
            if line.fault == "refused":
                return self._refuse()
            if line.fault == "reset before":
                return line.reset()
            if line.fault == "closed before":
                await _rest(requests)  # or the rest would be answered by a reset
                line.asked = False
                return line.client.transport.close()
            if line.fault == "late request":
                await self._hold(line)
            line.server.write(data)
        return None

    async def _pass_replies(self, line: _Line, replies: asyncio.StreamReader) -> None:
        while data := await replies.read(65536):
            line.asked = False
            line.answered.set()
            if line.fault == "refused after":
                return self._refuse()
            if line.fault == "reset after":
                return line.reset()
            if line.fault == "closed":
                return line.client.transport.close()
            if line.fault == "halved":
                data += await _rest(replies)
                line.client.write(data[: len(data) // 2])
                await asyncio.sleep(_REST_S)
                return line.reset()
            if line.fault == "late reply":
                await self._hold(line)
            line.fault = None
            if not line.client.transport.is_closing():
                line.client.write(data)
            self._arrived(line)
        return None

    async def _hold(self, line: _Line) -> None:
        """Wait until what is late may go on."""
        self._calm.clear()
        self._late.add(line)
        await self._let_go.wait()

    def _arrived(self, line: _Line) -> None:
        """Nothing of this line is late any more."""
        self._late.discard(line)
        if not self._late:
            self._calm.set()


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """What else comes within a moment."""
    rest = b""
    with suppress(TimeoutError):
        while data := await asyncio.wait_for(reader.read(65536), _REST_S):
            rest += data
    return rest
