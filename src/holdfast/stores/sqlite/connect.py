"""From a URL to the path and the options of an SQLite store."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadOption, BadURL

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL


def path_of(url: StoreURL) -> str:
    """Returns the path that a URL names."""
    path = url.path
    server = url.host or url.user or url.password or url.port
    if server or not path.strip("/") or ":memory:" in path:
        raise BadURL(
            "An SQLite store is named by its file: sqlite:///absolute/path, "
            "sqlite:///~/in/home or sqlite:relative/path (and memory:// needs no file)."
        )
    if path.startswith("/~") or (sys.platform == "win32" and path[2:3] == ":"):
        return path[1:]
    # Four slashes, as SQLAlchemy wants them for an absolute path, mean the same file.
    return "/" + path.lstrip("/") if path.startswith("/") else path


def options_of(url: StoreURL) -> dict[str, Any]:
    """Returns the options that a URL gives."""
    unknown = url.options.keys() - OPTIONS.keys()
    if unknown:
        raise BadURL(f"sqlite: URLs have no option {', '.join(sorted(unknown))}.")
    return {name: OPTIONS[name](text) for name, text in url.options.items()}


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options that were given to `connect`, if there are such options."""
    unknown = options.keys() - OPTIONS.keys()
    if unknown:
        raise BadOption(f"An SQLite store has no option {', '.join(sorted(unknown))}.")
    return options


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadOption(f"busy_s is a number of seconds, not {text!r}.") from None


def _yes(text: str) -> bool:
    if text not in ("yes", "no"):
        raise BadOption(f"one_machine is yes or no, not {text!r}.")
    return text == "yes"


# How each option is read from a URL.
OPTIONS: dict[str, Callable[[str], Any]] = {"busy_s": _number, "one_machine": _yes}
