"""One call of the command line: which store it is about, and how it speaks to people."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
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
    """What the shared options said."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.verbose = False

    @property
    def place(self) -> StoreSource:
        """What to connect to."""
        from holdfast.api.store_source import DEFAULT

        return DEFAULT if self.url is None else self.url

    @property
    def full_url(self) -> str:
        """The store's URL for another process in another folder. May have a password."""
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
        """The store's URL for people."""
        return shown(self.full_url)

    def store(self) -> Store:
        """Open the store by itself."""
        from holdfast.api.store_source import open_source

        return open_source(self.place, {})

    def locks(self, on_event: Callable[[Event], None] | None = None) -> Locks:
        """Open the store's locks."""
        from holdfast.api.locks import connect

        return connect(self.place, on_event=on_event)


def _file_url(path: Path) -> str:
    return f"sqlite://{quote(str(path.absolute()))}"


def tell(message: str) -> None:
    """One line to the person at the terminal. Whether anybody reads it must not matter."""
    if sys.stderr is None:
        return
    with suppress(OSError, ValueError):
        sys.stderr.write(f"holdfast: {printable(redact(message))}\n")  # in one piece
        sys.stderr.flush()


def quiet_library() -> None:
    """The commands report for themselves; a warning becomes one line."""
    logger = logging.getLogger("holdfast")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    warnings.showwarning = _show_warning


def show_log() -> None:
    """`--verbose`: what the library logs, in its own words."""
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
