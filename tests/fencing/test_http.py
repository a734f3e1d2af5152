"""The header, and the middleware in front of real services: WSGI, Flask, ASGI, Starlette."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import flask
import pytest
import uvicorn
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import holdfast
from holdfast import StaleFence, UsageError, fencing
from holdfast.fencing import Fence, aio
from tests.fencing.sql_ways import Site
from tests.helpers import memory_locks, unique


def never(*arguments: Any) -> Any:
    """An application that must not be asked."""
    raise AssertionError("this must not be called")


WRITE = text("INSERT INTO written (who) VALUES (:who)")
Served = AbstractContextManager[int]


class Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log_message(self, *words: Any) -> None:
        """Nothing."""


@contextmanager
def wsgi_server(app: Any) -> Iterator[int]:
    """The port of a real server."""
    with make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@contextmanager
def asgi_server(app: Any) -> Iterator[int]:
    """The same for ASGI."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def wsgi_service(site: Site) -> Served:
    """Writes the body of a request, in the gate's transaction."""

    @contextmanager
    def gate(fence: Fence) -> Iterator[Any]:
        with create_engine(site.url(), poolclass=NullPool).begin() as tx:
            fencing.sql.admit(tx, fence)
            yield tx

    def app(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        if environ["REQUEST_METHOD"] == "POST":
            who = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])).decode()
            environ["holdfast.gate"].execute(WRITE, {"who": who})
        start_response("200 OK", [])
        yield b"done"

    return wsgi_server(fencing.http.WSGIFencing(app, gate=gate))


def flask_service(site: Site) -> Served:
    """A view that admits in a transaction of its own, and an error handler."""
    app = flask.Flask("service")

    @app.get("/")
    def look() -> str:
        return "done"

    @app.post("/")
    def write() -> str:
        with create_engine(site.url(), poolclass=NullPool).begin() as tx:
            fencing.sql.admit(tx, fencing.http.current_fence())
            tx.execute(WRITE, {"who": flask.request.get_data(as_text=True)})
        return "done"

    @app.errorhandler(StaleFence)
    def stale(error: StaleFence) -> Any:
        reply = fencing.http.reply_to(error)
        return reply.body, reply.status, dict(reply.headers)

    app.wsgi_app = fencing.http.WSGIFencing(app.wsgi_app)  # type: ignore[method-assign]
    return wsgi_server(app)


def starlette_service(site: Site) -> Served:
    """An asyncio gate."""
    engine = create_async_engine(site.url("aiosqlite"), poolclass=NullPool)

    @asynccontextmanager
    async def gate(fence: Fence) -> Any:
        async with engine.begin() as tx:
            await aio.sql.admit(tx, fence)
            yield tx

    async def handle(request: Request) -> PlainTextResponse:
        if request.method == "POST":
            assert fencing.http.current_fence() == request.scope["holdfast.fence"]
            who = (await request.body()).decode()
            await request.scope["holdfast.gate"].execute(WRITE, {"who": who})
        return PlainTextResponse("done")

    routes = [Route("/", handle, methods=["GET", "POST"])]
    middleware: Any = [Middleware(fencing.http.ASGIFencing, gate=gate)]
    return asgi_server(Starlette(routes=routes, middleware=middleware))


def starlette_view(site: Site) -> Served:
    """A view that admits in a transaction of its own."""

    async def handle(request: Request) -> PlainTextResponse:
        if request.method == "POST":
            with create_engine(site.url(), poolclass=NullPool).begin() as tx:
                fencing.sql.admit(tx, fencing.http.current_fence())
                tx.execute(WRITE, {"who": (await request.body()).decode()})
        return PlainTextResponse("done")

    routes = [Route("/", handle, methods=["GET", "POST"])]
    middleware: Any = [Middleware(fencing.http.ASGIFencing)]
    return asgi_server(Starlette(routes=routes, middleware=middleware))


SERVICES = [wsgi_service, flask_service, starlette_service, starlette_view]


def ask(port: int, method: str, body: str = "", **headers: str) -> tuple[int, bytes]:
    """One request."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, "/", body, sent)
    answer = connection.getresponse()
    got = answer.status, answer.read()
    connection.close()
    return got


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_behind_a_gate(service: Any, tmp_path: Path) -> None:
    """A stale request is refused with the fences in the answer, and nothing of it stays."""
    site = Site("sqlite", tmp_path)
    key, first, stale = f"é/{unique()}", unique(), unique()
    with service(site) as port:
        assert ask(port, "GET") == (200, b"done")
        later = fencing.http.headers(Fence(key, 9))
        assert ask(port, "POST", first, **later) == (200, b"done")
        status, body = ask(port, "POST", stale, **fencing.http.headers(Fence(key, 8)))
        assert ask(port, "POST", stale)[0] == 428
        assert ask(port, "POST", stale, Holdfast_Fence="nonsense")[0] == 400
    assert (status, json.loads(body)["error"]) == (412, "stale fence")
    with pytest.raises(StaleFence) as refused:
        fencing.http.raise_if_stale(status, body)
    assert (refused.value.key, refused.value.fence, refused.value.remembered) == (key, 8, 9)
    assert [site.written(who) for who in (first, stale)] == [True, False]


def test_an_error_of_the_application_is_rolled_back(tmp_path: Path) -> None:
    """Flask makes an answer of the exception; what the view has written must not stay."""
    site, who = Site("sqlite", tmp_path), unique()

    @contextmanager
    def gate(fence: Fence) -> Iterator[Any]:
        with create_engine(site.url(), poolclass=NullPool).begin() as tx:
            fencing.sql.admit(tx, fence)
            yield tx

    app = flask.Flask("service")

    @app.post("/")
    def write() -> str:
        flask.request.environ["holdfast.gate"].execute(WRITE, {"who": who})
        raise ZeroDivisionError

    app.wsgi_app = fencing.http.WSGIFencing(app.wsgi_app, gate=gate)  # type: ignore[method-assign]
    sent = fencing.http.headers(Fence("k", 5))
    assert app.test_client().post("/", headers=sent).status_code == 500
    assert not site.written(who)


@pytest.mark.parametrize("status", [200, 404, 500, 503])
def test_an_error_ends_the_gate_of_asyncio_by_an_exception(status: int) -> None:
    """The answer is sent all the same."""
    ends: list[str] = []

    @contextmanager
    def gate(fence: Fence) -> Iterator[None]:
        try:
            yield
        except Exception:
            ends.append("rolled back")
            raise
        ends.append("committed")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"said"})

    async def story() -> list[Any]:
        said: list[Any] = []

        async def send(message: Any) -> None:
            said.append(message)

        fence = fencing.http.headers(Fence("k", 5))[fencing.http.HEADER].encode()
        scope = {"type": "http", "method": "POST", "headers": [(b"holdfast-fence", fence)]}
        await fencing.http.ASGIFencing(app, gate=gate)(scope, never, send)
        return said

    start, body = asyncio.run(story())
    assert (start["status"], body["body"]) == (status, b"said")
    assert ends == ["rolled back" if status >= 500 else "committed"]


def test_a_key_of_its_own_and_other_methods(tmp_path: Path) -> None:
    """A service that guards one key refuses the fences of others; methods can be named."""
    admitted: list[Fence] = []

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b"done"]

    guarded = fencing.http.WSGIFencing(
        app,
        gate=admitted.append,
        key="orders",
        methods={"GET"},
    )
    with wsgi_server(guarded) as port:
        assert ask(port, "GET", **fencing.http.headers(Fence("other", 1)))[0] == 409
        assert ask(port, "GET", **fencing.http.headers(Fence("orders", 1)))[0] == 200
        assert ask(port, "POST")[0] == 200
    assert admitted == [Fence("orders", 1)]


def test_gates_of_asyncio_that_are_no_context_managers() -> None:
    """Something to await, a plain function, and a context manager that blocks."""
    admitted: list[Fence] = []

    async def awaited(fence: Fence) -> None:
        admitted.append(fence)

    @contextmanager
    def blocking(fence: Fence) -> Iterator[None]:
        admitted.append(fence)
        yield

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def story() -> list[Any]:
        said: list[Any] = []

        async def send(message: Any) -> None:
            said.append(message["type"])

        for gate in (awaited, admitted.append, blocking):
            guarded = fencing.http.ASGIFencing(app, gate=gate)
            scope = {"type": "http", "method": "PUT", "headers": [(b"holdfast-fence", b"7;key=k")]}
            await guarded(scope, send, send)  # type: ignore[arg-type]
        await fencing.http.ASGIFencing(app)({"type": "lifespan"}, send, send)  # type: ignore[arg-type]
        return said

    assert asyncio.run(story()) == 4 * ["http.response.start", "http.response.body"]
    assert admitted == 3 * [Fence("k", 7)]


def test_a_header_that_came_twice() -> None:
    """Servers of WSGI join it by a comma. That is not a fence of a key which nobody else has."""
    with wsgi_server(fencing.http.WSGIFencing(never)) as port:
        client = HTTPConnection("127.0.0.1", port, timeout=30)
        client.putrequest("POST", "/")
        for fence in (5, 6):
            client.putheader(fencing.http.HEADER, f"{fence};key=k")
        client.endheaders()
        with client.getresponse() as answer:
            assert (answer.status, json.load(answer)["error"]) == (400, "bad fence")
        client.close()


@pytest.mark.parametrize("kind", [fencing.http.WSGIFencing, fencing.http.ASGIFencing])
def test_methods_that_would_guard_nothing(kind: Any) -> None:
    """`"POST"` is no collection of methods; `"post"` means POST."""
    for bad in ("POST", [], [5], [""]):
        with pytest.raises(holdfast.BadOption, match="methods"):
            kind(never, methods=bad)
    guard = kind(never, methods=["post"])._guard
    assert guard.applies("POST")
    assert not guard.applies("PUT")


def test_headers() -> None:
    """They come back as they were sent, from leases, too."""
    with memory_locks() as locks, locks.acquire("a;key=b é%") as lease:
        (header,) = fencing.http.headers(lease).values()
        assert fencing.http.fence_in(header) == Fence(lease.key, lease.fence)
    for bad in ("", "5", "5;key=", "x;key=k", "-5;key=k", "5;key=%ff", "9" * 30 + ";key=k",
                "5;key=k,6;key=k", "5;key=k, 6;key=k", "5;key=k;key=l", "5;key=k l", "5;key=%4",
                "5;key=\u00c3\u00a9", "\u0665;key=k", "5 ;key=k", "5;key=%00"):  # fmt: skip
        with pytest.raises(UsageError):
            fencing.http.fence_in(bad)
    with pytest.raises(UsageError, match="No request"):
        fencing.http.current_fence()
    with pytest.raises(holdfast.LeaseLost):
        fencing.http.headers(lease)
    for status, body in ((200, "{}"), (412, "no JSON"), (412, "{}"), (412, "[]"),
                         (412, '{"key": "k", "fence": Infinity, "remembered": 1}')):  # fmt: skip
        fencing.http.raise_if_stale(status, body)
