"""No file descriptor is left: how to tell, and what to say.

A process may have only so many files and connections open at a time. Drivers meet that limit
in many places and report it in as many ways, often as something else.
"""

from __future__ import annotations

import os
from contextlib import suppress
from errno import EMFILE, ENFILE

from holdfast.errors import Unavailable

ADVICE = (
    "No file descriptor is left: close files and connections that are not needed, or raise the "
    "limit of open files (`ulimit -n`)."
)
_CODES = (EMFILE, ENFILE)


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
    except OSError:
        return False
    finally:
        for one in opened:
            with suppress(OSError):
                os.close(one)
    return True


def out_of_descriptors(exc: BaseException) -> bool:
    """Whether this failed because no descriptor is left, though the error itself may not tell."""
    return is_shortage(exc) or not has_room_for(1)


def shortage(where: str) -> Unavailable:
    """What to raise: nothing was done, and it may work later."""
    return Unavailable(f"{where} cannot be opened. {ADVICE}")
