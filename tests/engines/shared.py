"""Servers that many tests use: started on first use, stopped when the tests end."""

from __future__ import annotations

import atexit
from typing import Any, Protocol, TypeVar, cast

from tests.engines.base import Engine, require


class Startable(Protocol):
    """An engine, or several that belong together."""

    def start(self) -> None: ...
    def stop(self) -> None: ...


S = TypeVar("S", bound=Startable)
_started: dict[type[Any], Any] = {}


def shared(kind: type[S]) -> S:
    """The one server of this kind; do not harm it."""
    if kind not in _started:
        if issubclass(kind, Engine):
            require(kind)
        _started[kind] = _start(kind)
    found = _started[kind]
    if isinstance(found, Exception):
        raise found
    return cast("S", found)


def _start(kind: type[S]) -> S | Exception:
    server = kind()
    atexit.register(server.stop)
    try:
        server.start()
    except Exception as exc:  # tried once; every test that needs it fails the same way
        return exc
    return server
