"""Says which extra to install, where a library is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import MissingDriver


@contextmanager
def needed(what: str, extra: str | None) -> Iterator[None]:
    """In this block `what` imports its libraries. Raises `MissingDriver` if one is not installed.

    `extra` brings them, or None if no extra of ours does.
    """
    try:
        yield
    except MissingDriver:
        raise
    except ImportError as exc:
        missing = exc.name or str(exc)
        help_ = f"pip install 'holdfast[{extra}]'" if extra else f"install {missing}"
        raise MissingDriver(f"{what} needs {missing}: {help_}") from exc
