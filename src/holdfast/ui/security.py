"""Who may ask the page for what.

1. The Host header must name this server. Otherwise a foreign site could reach it under a name of
   its own that it points to this machine (DNS rebinding).
2. A request that a browser sends for another site (Origin, Sec-Fetch-Site) is refused.
3. Where a token is required, it comes in the Authorization header: a browser never adds that by
   itself, so no foreign page can use it. It is compared in constant time.
4. Every answer forbids scripts, styles and frames from anywhere else.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets through what is allowed, and adds the headers."""

    def __init__(
        self, app: Any, hosts: Iterable[str], token: str | None, *, to_read: bool, evict: bool
    ) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._token = token
        self._to_read = to_read  # the token is required for reading, too
        self._evict = evict

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        refused = self._refused(scope)
        await (refused or self._app)(scope, receive, send_with_headers)

    def _refused(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            return _no(421, "This server does not have that name.")
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host}":
            return _no(403, "Requests from other sites are refused.")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return _no(403, "Requests from other sites are refused.")
        writes = scope["method"] not in ("GET", "HEAD")
        if writes and not self._evict:
            return _no(403, "This page is read-only: start it with --allow-evict.")
        asks_for_data = scope["path"].startswith(("/api", "/metrics"))
        if (writes or (self._to_read and asks_for_data)) and not self._has_token(headers):
            return _no(401, "The token is missing or wrong: open the address that was printed.")
        return None

    def _has_token(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        return (
            self._token is not None
            and kind.lower() == "bearer"
            and hmac.compare_digest(given.encode(), self._token.encode())
        )


def _no(code: int, why: str) -> JSONResponse:
    return JSONResponse({"error": why}, code)
