"""One server of each kind for the whole run, started by the first test that wants it."""

from __future__ import annotations

import atexit
from typing import TypeVar

from tests.engines.base import Engine, require

E = TypeVar("E", bound=Engine)

_running: dict[type[Engine], Engine] = {}


def shared(kind: type[E]) -> E:
    """The run's server of this kind. Tests that kill or pause a server start their own."""
    engine = _running.get(kind)
    if engine is None:
        require(kind)
        engine = _running[kind] = kind()
        atexit.register(engine.stop)
        engine.start()
    assert isinstance(engine, kind)
    return engine
