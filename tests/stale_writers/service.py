"""A small service in front of a table: behind the gate if a fence comes, otherwise without."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from holdfast import fencing
from holdfast.fencing import Fence

if TYPE_CHECKING:
    from tests.stale_writers.targets import SQL


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *words: Any) -> None:
        """Nothing."""


def serve(target: SQL) -> int:
    """Serve in a thread until the program ends. Returns the port."""
    engine = create_engine(target.address["url"], poolclass=NullPool)

    @contextmanager
    def gate(fence: Fence) -> Iterator[Any]:
        with engine.begin() as tx:
            fencing.sql.admit(tx, fence)
            yield tx

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        from tests.stale_writers.targets import _put

        name = environ["PATH_INFO"].strip("/")
        answer = ""
        if environ["REQUEST_METHOD"] == "GET":
            answer = target.read(name) or ""
        else:
            value = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])).decode()
            if "holdfast.gate" in environ:
                _put(environ["holdfast.gate"], name, value)
            else:
                target.write(name, value, None)
        start_response("200 OK", [])
        return [answer.encode()]

    guarded = fencing.http.WSGIFencing(app, gate=gate)

    def either(environ: dict[str, Any], start_response: Any) -> Any:
        fenced = "HTTP_HOLDFAST_FENCE" in environ
        return (guarded if fenced else app)(environ, start_response)

    server = make_server("127.0.0.1", 0, either, _Server, _Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port
