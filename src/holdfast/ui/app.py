"""The page and its JSON API, as a Starlette application. `docs/ui.md` documents the API."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from importlib.resources import files
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from holdfast.core.records import UNREADABLE
from holdfast.errors import HoldfastError, UsageError
from holdfast.stores.url import redact
from holdfast.ui import waits
from holdfast.ui.history import History
from holdfast.ui.observer import Observer
from holdfast.ui.security import Guard

_FILES = {
    "/": ("index.html", "text/html"),
    "/style.css": ("style.css", "text/css"),
    "/app.js": ("app.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
LONGEST_BODY = 10_000
_encode = msgspec.json.Encoder().encode


class Page:
    """Answers requests from what the observer has seen."""

    def __init__(
        self, observer: Observer, history: History, about: dict[str, Any], metrics: Any
    ) -> None:
        self._observer = observer
        self._history = history
        self._about = about
        self._metrics = metrics

    def routes(self) -> list[Route]:
        """Returns what can be asked for."""
        return [
            *(Route(path, self.file) for path in _FILES),
            Route("/api/about", self.about),
            Route("/api/locks", self.locks),
            Route("/api/timeline", self.timeline),
            Route("/api/waits", self.waits),
            Route("/api/updates", self.updates),
            Route("/api/evict", self.evict, methods=["POST"]),
            Route("/metrics", self.metrics),
        ]

    async def file(self, request: Request) -> Response:
        """A part of the page."""
        name, kind = _FILES[request.url.path]
        return Response(files("holdfast.ui").joinpath("page", name).read_bytes(), media_type=kind)

    async def about(self, request: Request) -> Response:
        """What this page shows."""
        return _json(self._about)

    async def locks(self, request: Request) -> Response:
        """All locks as they were seen last, or those whose keys start with `prefix`."""
        prefix = request.query_params.get("prefix", "")
        key = request.query_params.get("key")
        shown = self._observer.snapshot()
        shown["locks"] = [
            lock
            for lock in shown["locks"]
            if lock["key"].startswith(prefix) and (key is None or lock["key"] == key)
        ]
        return _json(shown)

    async def timeline(self, request: Request) -> Response:
        """Who held what and who waited, between `since` and `until`."""
        now = time.time()
        try:
            until = float(request.query_params.get("until", now))
            since = float(request.query_params.get("since", until - 3600))
        except ValueError:
            return _error(400, "since and until are seconds since 1970.")
        prefix = request.query_params.get("prefix", "")
        found = await asyncio.to_thread(self._history.between, since, until, prefix)
        return _json({"now": now, "since": since, "until": until, **found})

    async def waits(self, request: Request) -> Response:
        """Who waits for whom, and who in a circle."""
        found = waits.edges(self._observer.seen.values())
        return _json({"waits": found, "cycles": waits.cycles(found)})

    async def updates(self, request: Request) -> Response:
        """Server-sent events: a snapshot, and then what changes."""

        async def stream() -> AsyncIterator[bytes]:
            async for update in self._observer.updates():
                yield b"data: " + _encode(update) + b"\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def evict(self, request: Request) -> Response:
        """Evict the holder of `key` with `fence`, with a `reason` and an `operator`."""
        try:
            asked = _decoder.decode(await _body(request))
        except UNREADABLE:
            return _error(400, "Send JSON with key, fence, reason and operator.")
        reason, operator = asked.reason.strip(), asked.operator.strip()
        if not reason or not operator:
            return _error(400, "An eviction needs a reason, and who you are.")
        try:
            evicted = await self._observer.evict(asked.key, asked.fence, reason, operator)
        except UsageError as exc:
            return _error(400, str(exc))
        except HoldfastError as exc:
            return _error(503, redact(str(exc)))
        return _json({"evicted": evicted})

    async def metrics(self, request: Request) -> Response:
        """What the page has seen, for Prometheus."""
        if self._metrics is None:
            return _error(
                404, "Metrics need prometheus_client: pip install 'holdfast[prometheus]'."
            )
        text, kind = self._metrics()
        return Response(text, headers={"content-type": kind})


class Eviction(msgspec.Struct):
    """What is sent to evict a holder."""

    key: str
    fence: int
    reason: str
    operator: str


_decoder = msgspec.json.Decoder(Eviction)


async def _body(request: Request) -> bytes:
    """Returns what was sent; nothing if it is too long, and then no more of it is read."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST_BODY:
            return b""
    return body


def _json(value: Any) -> Response:
    return Response(_encode(value), media_type="application/json")


def _error(code: int, why: str) -> Response:
    return JSONResponse({"error": why}, code)


def application(
    observer: Observer,
    history: History,
    *,
    about: dict[str, Any],
    hosts: Iterable[str],
    token: str | None,
    token_to_read: bool,
    evict: bool,
    metrics: Any = None,
) -> Any:
    """Returns the application. It looks at the store while it runs."""

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(observer.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    page = Page(observer, history, about, metrics)
    app = Starlette(routes=page.routes(), lifespan=life)
    return Guard(app, hosts, token, to_read=token_to_read, evict=evict)
