"""Has clients give back what they still hold when the program ends."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol


class Ending(Protocol):
    """An object with something to do before the program ends."""

    def end(self) -> None:
        """Do it, within a bounded time."""


_clients: weakref.WeakSet[Ending] = weakref.WeakSet()


def register(client: Ending) -> None:
    """Call `end` of this client when the program ends, if the client still exists."""
    _clients.add(client)


@atexit.register
def _end() -> None:
    for client in list(_clients):
        client.end()
