"""After a fork the child holds nothing: clients of before know it by their generation."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """Something that must not be used on both sides of a fork."""

    def abandon(self) -> None: ...


_generation = 0
_clients: weakref.WeakSet[Forkable] = weakref.WeakSet()


def register(client: Forkable) -> int:
    """Remember a client; it belongs to the generation that is returned."""
    _clients.add(client)
    return _generation


def generation() -> int:
    """How many forks lie between the first process and this one."""
    return _generation


def _in_child() -> None:
    global _generation
    _generation += 1
    for client in list(_clients):
        client.abandon()
    _clients.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
