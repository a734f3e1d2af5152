"""One call of the command line: its store, its messages and its log."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.observe.log import printable
from holdfast.stores.url import redact, shown

if TYPE_CHECKING:
    from holdfast.api.locks import Locks
    from holdfast.api.store_source import StoreSource
    from holdfast.core.events import Event
    from holdfast.stores.base import Store


class Session:
    """The options that all commands share."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.verbose = False
        self.request_timeout: float | None = None
        self.store_patience: float | None = None  # infinite: for ever

    @property
    def place(self) -> StoreSource:
        """Returns what to connect to."""
        from holdfast.api.store_source import DEFAULT

        return DEFAULT if self.url is None else self.url

    @property
    def full_url(self) -> str:
        """Returns the store's URL for a process in another folder. It may contain a password."""
        from holdfast.api.store_source import embedded_path

        if self.url is None:
            return _file_url(embedded_path())
        scheme, _, rest = self.url.partition(":")
        if scheme.lower() != "sqlite" or rest.startswith("/"):
            return self.url
        start = "" if rest.startswith("~") else quote(str(Path.cwd()))
        return f"sqlite://{start}/{rest}"

    @property
    def shown_url(self) -> str:
        """Returns the store's URL without its secrets."""
        return shown(self.full_url)

    def store(self) -> Store:
        """Open the store without a client."""
        from holdfast.api.store_source import open_source

        return open_source(self.place, {})

    def locks(
        self,
        on_event: Callable[[Event], None] | None = None,
        sinks: Iterable[Callable[[Event], None]] = (),
    ) -> Locks:
        """Open the store's locks."""
        from holdfast.api.locks import connect

        options: dict[str, Any] = {}
        if self.request_timeout is not None:
            options["request_timeout"] = self.request_timeout
        if self.store_patience is not None:
            options["store_patience"] = None if isinf(self.store_patience) else self.store_patience
        return connect(self.place, on_event=on_event, sinks=sinks, **options)


def _file_url(path: Path) -> str:
    return f"sqlite://{quote(str(path.absolute()))}"


def tell(message: str) -> None:
    """Write one line to stderr. It does not matter whether anybody can read it."""
    if sys.stderr is None:
        return
    with suppress(OSError, ValueError):
        sys.stderr.write(f"holdfast: {printable(redact(message))}\n")  # in one piece
        sys.stderr.flush()


def quiet_library() -> None:
    """Silence the log, because commands report by themselves, and make a warning one line."""
    logger = logging.getLogger("holdfast")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    warnings.showwarning = _show_warning


def show_log() -> None:
    """`--verbose`: write the library's log to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("holdfast")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)


class _Lines(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    tell(f"warning: {message}")
