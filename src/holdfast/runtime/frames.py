"""Keeps secrets out of the tracebacks of a store's errors.

Local variables of stores and their drivers contain passwords, records with tokens, and the
arguments of scripts. Some tracebacks show local variables (rich, Sentry, pytest -l). So an error
that leaves a store loses the frames of the store and its driver. The error, its causes and their
messages stay. HOLDFAST_KEEP_FRAMES=1 keeps the frames, too.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import TypeVar

from holdfast.errors import HoldfastError

E = TypeVar("E", bound=BaseException)

# For debugging a store or a driver.
KEEPS_FRAMES = bool(os.environ.get("HOLDFAST_KEEP_FRAMES"))


def without_frames(trouble: E) -> E:
    """Remove the frames below the caller from an error of a store and from its causes. Returns it.

    An exception that is not a HoldfastError is a bug, and keeps its frames. So do exceptions that
    the caller's callers were handling meanwhile.
    """
    if KEEPS_FRAMES or not isinstance(trouble, HoldfastError):
        return trouble
    above = _frames_above(sys._getframe(1))
    left: list[BaseException | None] = [trouble]
    seen: set[int] = set()
    while left:
        exc = left.pop()
        if exc is None or id(exc) in seen or _caught_in(exc, above):
            continue
        seen.add(id(exc))
        exc.__traceback__ = None
        left += (exc.__cause__, exc.__context__)
    return trouble


def _caught_in(exc: BaseException, frames: set[FrameType]) -> bool:
    return exc.__traceback__ is not None and exc.__traceback__.tb_frame in frames


def _frames_above(frame: FrameType) -> set[FrameType]:
    above: set[FrameType] = set()
    caller = frame.f_back
    while caller is not None:
        above.add(caller)
        caller = caller.f_back
    return above


def raised_by_signal(exc: BaseException) -> bool:
    """Whether a signal handler of this program raised it, in the middle of something else. Only for
    handlers that are functions."""
    handlers = {getattr(signal.getsignal(one), "__code__", None) for one in signal.valid_signals()}
    traceback = exc.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback = traceback.tb_next
    return False
