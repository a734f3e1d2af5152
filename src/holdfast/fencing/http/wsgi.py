"""The middleware for WSGI."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from holdfast.errors import KeyMismatch, StaleFence
from holdfast.fencing.gate import Fence
from holdfast.fencing.http.messages import Failed, Guard, Reply, current, reply_to

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

Gate = Callable[[Fence], AbstractContextManager[Any] | None]
_HEADER = "HTTP_HOLDFAST_FENCE"


class WSGIFencing:
    """Handles requests that change something behind a gate: `app = WSGIFencing(app, gate=gate)`.

    `gate(fence)` admits the fence, best in a context manager whose transaction the request is
    handled in; what that gives is in `environ["holdfast.gate"]`, and the fence in
    `environ["holdfast.fence"]`. The answer is sent when the gate has closed again, so whoever is
    told that it was done can rely on it. If it is a server error (5xx), the gate is left with an
    exception, and its transaction rolls back. A stale fence is answered with 412, a missing one
    with 428, a bad one with 400, one of another `key` with 409.
    """

    def __init__(
        self,
        app: WSGIApplication,
        *,
        gate: Gate | None = None,
        key: str | None = None,
        methods: Collection[str] | None = None,
    ) -> None:
        self._app = app
        self._gate = gate
        self._guard = Guard.of(key, methods)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if not self._guard.applies(environ["REQUEST_METHOD"]):
            return self._app(environ, start_response)
        fence = self._guard.fence(environ.get(_HEADER))
        if isinstance(fence, Reply):
            return _answer(fence, start_response)
        try:
            answer = self._handle(environ, fence)
        except (StaleFence, KeyMismatch) as trouble:
            return _answer(reply_to(trouble), start_response)
        start_response(*answer.started)
        return answer.body

    def _handle(self, environ: WSGIEnvironment, fence: Fence) -> _Answer:
        answer = _Answer()
        token = current.set(fence)
        try:
            entered = self._gate(fence) if self._gate is not None else None
            with (
                suppress(Failed),
                entered if entered is not None else nullcontext() as inside,
            ):
                environ["holdfast.fence"], environ["holdfast.gate"] = fence, inside
                answer.collect(self._app(environ, answer.start))
                if answer.failed:
                    raise Failed
        finally:
            current.reset(token)
        return answer


class _Answer:
    """What the application answers, kept until the gate has closed."""

    def __init__(self) -> None:
        self.started: tuple[Any, ...] = ()
        self.body: list[bytes] = []

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        """The application's `start_response`."""
        self.started = (status, headers)
        return self.body.append

    @property
    def failed(self) -> bool:
        """Whether it is a server error."""
        return bool(self.started) and str(self.started[0]).startswith("5")

    def collect(self, chunks: Iterable[bytes]) -> None:
        """Take all that the application yields."""
        try:
            self.body.extend(chunks)
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()


def _answer(reply: Reply, start_response: StartResponse) -> list[bytes]:
    start_response(f"{reply.status} {HTTPStatus(reply.status).phrase}", reply.headers)
    return [reply.body]
