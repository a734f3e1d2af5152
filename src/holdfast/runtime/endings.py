"""Has clients give back what they still hold when the program ends."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from typing import Protocol


class Ending(Protocol):
    """An object with something to do before the program ends."""

    def end(self) -> Callable[[], object]:
        """Begin, and return at once. What is returned waits until it is done, but no longer than a
        time that is counted from the beginning."""


_clients: weakref.WeakSet[Ending] = weakref.WeakSet()


def register(client: Ending) -> None:
    """Call `end` of this client when the program ends, if the client still exists."""
    _clients.add(client)


@atexit.register
def _end() -> None:
    # All begin before anybody waits, so that many clients take no longer than one.
    waits = [client.end() for client in list(_clients)]
    for wait in waits:
        wait()
