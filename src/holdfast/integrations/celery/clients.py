"""One Holdfast client per process and store, whatever the number of tasks.

Clients are made on first use. Celery's prefork pool forks after the app was imported: a forked
child starts with none, and makes its own.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from celery import signals

import holdfast
from holdfast.api.store_source import URL_VARIABLE
from holdfast.errors import BadOption
from holdfast.integrations.celery.greenlets import refuse_greenlets
from holdfast.runtime import fork_hooks
from holdfast.stores.url import redact

logger = logging.getLogger("holdfast")

URL_SETTING = "holdfast_url"
OPTIONS_SETTING = "holdfast_options"

LocksSource: TypeAlias = holdfast.Locks | Callable[[], holdfast.Locks]


class Clients:
    """The clients of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[Any, holdfast.Locks] = {}

    def get(self, name: Any, make: Callable[[], holdfast.Locks]) -> holdfast.Locks:
        """Returns the client of this name, and makes it on first use."""
        client = self._clients.get(name)
        if client is None:
            with self._lock:
                client = self._clients.get(name)
                if client is None:
                    refuse_greenlets()
                    client = self._clients[name] = make()
        return client

    def close(self) -> None:
        """Close all clients. The next use makes new ones."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()


_mine = Clients()


def locks_for(app: Any, url: str | None, locks: LocksSource | None) -> holdfast.Locks:
    """Returns the locks that a decorator names, or those of the app's settings."""
    if isinstance(locks, holdfast.Locks):
        refuse_greenlets()
        return locks
    if locks is not None:
        return _mine.get(locks, locks)
    place = url or _url_of(app)
    options = dict(app.conf.get(OPTIONS_SETTING) or {}) if app is not None else {}
    return _mine.get(place, lambda: _connect(place, options))


def _url_of(app: Any) -> str:
    place = (app.conf.get(URL_SETTING) if app is not None else None) or os.environ.get(URL_VARIABLE)
    if place:
        return str(place)
    # connect() without a URL opens a file of this machine, which other machines do not see.
    raise BadOption(
        f"Say where the locks are: app.conf.{URL_SETTING}, ${URL_VARIABLE} or "
        f"@exclusive(..., url=...). All workers must reach the same store."
    )


def _connect(place: str, options: dict[str, Any]) -> holdfast.Locks:
    locks = holdfast.connect(place, **options)
    if locks.facts.reach == "process" and locks.facts.name != "null":
        logger.warning(
            "%s locks only within this process: worker processes do not see each other's locks",
            redact(place),
        )
    return locks


@fork_hooks.in_child
def _in_child() -> None:
    global _mine
    _mine = Clients()  # with a new lock: a thread of the parent may have held the old one


def _close(**_: Any) -> None:
    _mine.close()


signals.worker_process_shutdown.connect(_close)
signals.worker_shutdown.connect(_close)
