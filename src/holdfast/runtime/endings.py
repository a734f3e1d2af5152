"""When the program ends, clients give back what they still hold."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol


class Ending(Protocol):
    """Something that has to do a last thing before the program ends."""

    def end(self) -> None:
        """Do it, in bounded time."""


_clients: weakref.WeakSet[Ending] = weakref.WeakSet()


def register(client: Ending) -> None:
    """Tell this client when the program ends, if it is still there."""
    _clients.add(client)


@atexit.register
def _end() -> None:
    for client in list(_clients):
        client.end()
