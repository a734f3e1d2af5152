"""moto, which plays the services of AWS; `python -m tests.engines.moto PORT` serves it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from tests.engines.base import Engine, listens


class Moto(Engine):
    """A server that forgets all when it ends. Its replies tell the time in `Date`."""

    @classmethod
    def installed(cls) -> bool:
        return find_spec("moto") is not None

    def command(self) -> list[str]:
        return [sys.executable, "-P", "-m", "tests.engines.moto", str(self.port)]

    def environment(self) -> dict[str, str]:
        repository = Path(__file__).parent.parent.parent
        return {**super().environment(), "PYTHONPATH": str(repository)}

    def answers(self) -> bool:
        return listens(self.port)

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


class _OneAtATime:
    """moto checks a condition and then writes, in many threads, without a lock of its own."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = Lock()

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        with self._lock:
            return list(self._app(environ, start))


def serve(port: int) -> None:
    """Serve until the process is ended."""
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import run_simple

    app = _OneAtATime(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", port, app, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
