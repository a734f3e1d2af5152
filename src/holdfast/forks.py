"""After a fork the child holds nothing: clients of before the fork are told in the child."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """Something that must not be used on both sides of a fork."""

    def abandon(self) -> None:
        """This is the child, and everything here is the parent's."""


_clients: weakref.WeakSet[Forkable] = weakref.WeakSet()


def register(client: Forkable) -> None:
    """Tell this client if it comes to find itself in a child."""
    _clients.add(client)


def _in_child() -> None:
    for client in list(_clients):
        client.abandon()
    _clients.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
