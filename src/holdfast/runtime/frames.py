"""What a store has to write out is not shown by the traceback of its errors.

To connect takes a password, a record has tokens in it, and so have the arguments of a script: they
stand in local variables of stores and of their drivers, which some tracebacks show (rich, Sentry,
pytest -l). So the frames of both are forgotten when an error leaves a store. The error and its
causes stay, with their words; HOLDFAST_KEEP_FRAMES=1 keeps the frames, too.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import TypeVar

from holdfast.errors import HoldfastError

E = TypeVar("E", bound=BaseException)

# For whoever looks for a mistake in a store.
KEEPS_FRAMES = bool(os.environ.get("HOLDFAST_KEEP_FRAMES"))


def without_frames(trouble: E) -> E:
    """An error of a store, without the frames through which it came to the caller of this, and its
    causes without theirs. What is no error of ours is a mistake, and stays as it is.

    What the caller's callers were handling meanwhile is left alone.
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
