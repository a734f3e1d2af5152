"""The one loop that runs generators: it answers what they yield until they return.

The core's steps yield effects, and the protocol of a store yields requests. Both run here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, TypeVar

from holdfast.runtime.frames import without_frames

R = TypeVar("R")


async def run(
    steps: Generator[Any, Any, R],
    at_once: Mapping[type, Callable[[Any], Any]],
    awaited: Mapping[type, Callable[[Any], Awaitable[Any]]],
) -> R:
    """Run a generator to its end. Returns what the generator returns.

    Everything it yields is passed to the function for its type: one in `at_once`, which answers
    without waiting, or one in `awaited`. An exception of that function is thrown into the
    generator. An interrupt or a cancellation closes the generator where it stands.
    """
    try:
        asked = steps.send(None)
        while True:
            kind = type(asked)
            try:
                answer = at_once[kind](asked) if kind in at_once else await awaited[kind](asked)
            except Exception as trouble:
                asked = steps.throw(without_frames(trouble))
            else:
                asked = steps.send(answer)
    except StopIteration as done:
        returned: R = done.value
        return returned
    except BaseException:
        steps.close()
        raise
