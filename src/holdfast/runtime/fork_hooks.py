"""What happens at a fork: a child process holds none of its parent's leases.

In the child, clients from before the fork are marked as the parent's. Stores whose connections must
not be open across a fork pause before it and resume after it, on both sides.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Forkable(Protocol):
    """Something that must not be used on both sides of a fork."""

    def abandon(self) -> None:
        """Mark everything here as the parent's. Called in the child."""


class Pausable(Protocol):
    """A store that must close its connections for a fork. Neither method may raise."""

    def pause(self) -> None:
        """Finish the calls under way, close the connections, and let no call begin."""

    def resume(self) -> None:
        """Let calls begin again. Called in the parent and in the child."""


_clients: weakref.WeakSet[Forkable] = weakref.WeakSet()
_stores: weakref.WeakSet[Pausable] = weakref.WeakSet()
# One fork at a time, and none while a store opens. It is reentrant, because a signal handler may
# fork in the middle of anything.
_forking = threading.RLock()
_paused: list[Pausable] = []


def register(client: Forkable) -> None:
    """Call `abandon` of this client in a forked child."""
    _clients.add(client)


def register_store(store: Pausable) -> None:
    """Pause this store while the process forks."""
    _stores.add(store)


def held_off() -> AbstractContextManager[Any]:
    """Keeps other threads from forking, while a store opens and cannot be paused yet."""
    return _forking


def in_child(call: Callable[[], None]) -> Callable[[], None]:
    """Call this function in every child. For state that a child must not share with its parent."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)
    return call


def _before() -> None:
    _forking.acquire()
    for store in list(_stores):
        store.pause()
        _paused.append(store)


def _after() -> None:
    while _paused:
        _paused.pop().resume()
    _forking.release()


def _in_child() -> None:
    _after()
    for client in list(_clients):
        client.abandon()
    _clients.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
