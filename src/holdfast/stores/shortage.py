"""A process that has no file descriptor left.

Drivers report it in many ways, or say no more than that a connection is bad. So where the
error itself does not tell, one is tried for.
"""

from __future__ import annotations

import errno
import os

ADVICE = (
    "This process has no file descriptor left: raise its limit of open files (ulimit -n), or "
    "let it close some."
)
_CODES = frozenset({errno.EMFILE, errno.ENFILE})


def out_of_descriptors(exc: BaseException) -> bool:
    """Whether this failed because no file descriptor is left."""
    return _is_told(exc) or _none_to_be_had()


def _is_told(exc: BaseException | None) -> bool:
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        if isinstance(exc, OSError) and exc.errno in _CODES:
            return True
        seen.add(id(exc))
        exc = exc.__cause__ or exc.__context__
    return False


def _none_to_be_had() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as exc:
        return exc.errno in _CODES
    return False
