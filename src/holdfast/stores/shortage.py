"""Recognises that this process has no file descriptor left.

Drivers report it in many ways, or only say that a connection is bad. Where the error itself does
not tell, we try to open a descriptor.
"""

from __future__ import annotations

import os
from contextlib import suppress
from errno import EMFILE, ENFILE

from holdfast.errors import Unavailable

ADVICE = (
    "This process has no file descriptor left: raise its limit of open files (ulimit -n), or "
    "let it close some."
)
_CODES = frozenset({EMFILE, ENFILE})


def out_of_descriptors(exc: BaseException) -> bool:
    """Whether this failed because no file descriptor is left."""
    return is_shortage(exc) or not has_room_for(1)


def is_shortage(exc: BaseException | None) -> bool:
    """Whether this error, or one that led to it, says that no descriptor is left."""
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        if isinstance(exc, OSError) and exc.errno in _CODES:
            return True
        seen.add(id(exc))
        exc = exc.__cause__ or exc.__context__
    return False


def has_room_for(count: int) -> bool:
    """Whether this process can open so many descriptors at this moment."""
    opened: list[int] = []
    try:
        while len(opened) < count:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as exc:
        return exc.errno not in _CODES
    finally:
        for one in opened:
            with suppress(OSError):
                os.close(one)
    return True


def shortage(where: str) -> Unavailable:
    """Returns what to raise: nothing was done, and it may work later."""
    return Unavailable(f"{where} cannot be opened. {ADVICE}")
