"""The middleware for ASGI."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from holdfast.errors import KeyMismatch, StaleFence
from holdfast.fencing.gate import Fence
from holdfast.fencing.http.messages import HEADER, Failed, Guard, Reply, current, reply_to

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
# It may return a context manager of either kind, something to await, or nothing.
Gate = Callable[[Fence], Any]
_HEADER = HEADER.lower().encode()


class ASGIFencing:
    """Handles requests that change something behind a gate; see `WSGIFencing`.

    What the gate gives is in `scope["holdfast.gate"]`, and the fence in `scope["holdfast.fence"]`.
    """

    def __init__(
        self,
        app: App,
        *,
        gate: Gate | None = None,
        key: str | None = None,
        methods: Collection[str] | None = None,
    ) -> None:
        self._app = app
        self._gate = gate
        self._guard = Guard.of(key, methods)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._guard.applies(scope["method"]):
            await self._app(scope, receive, send)
            return
        found = [value.decode("latin-1") for name, value in scope["headers"] if name == _HEADER]
        fence = self._guard.fence(found[0] if len(found) == 1 else None)
        if isinstance(fence, Reply):
            await _answer(fence, send)
            return
        try:
            messages = await self._handle(scope, receive, fence)
        except (StaleFence, KeyMismatch) as trouble:
            await _answer(reply_to(trouble), send)
            return
        for message in messages:
            await send(message)

    async def _handle(self, scope: Scope, receive: Receive, fence: Fence) -> list[Message]:
        """Returns the application's answer, when the gate has closed."""
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        token = current.set(fence)
        try:
            with suppress(Failed):
                async with _entered(self._gate, fence) as inside:
                    about = {"holdfast.fence": fence, "holdfast.gate": inside}
                    await self._app({**scope, **about}, receive, keep)
                    if any(message.get("status", 0) >= 500 for message in messages):
                        raise Failed
        finally:
            current.reset(token)
        return messages


@asynccontextmanager
async def _entered(gate: Gate | None, fence: Fence) -> AsyncIterator[Any]:
    entered: Any = gate(fence) if gate is not None else None
    if hasattr(entered, "__aenter__"):
        async with entered as inside:
            yield inside
    elif hasattr(entered, "__enter__"):
        with entered as inside:
            yield inside
    else:
        yield await entered if inspect.isawaitable(entered) else entered


async def _answer(reply: Reply, send: Send) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in reply.headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
