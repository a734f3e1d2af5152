"""What happens at a fork: a child process holds none of its parent's leases.

In the child, clients from before the fork are marked as the parent's; `Locks` makes a new one when
it is next used. Stores whose connections must not be open across a fork pause before it and resume
after it, on both sides.

Some programs fork without telling Python (uWSGI, unless it is asked to). So a client also compares
process ids, and does not rely on these hooks.
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
    """A store that must close its connections for a fork. Neither method may raise, except for an
    interrupt; `resume` may be called again, and after a `pause` that was interrupted."""

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
# Held while a client is made anew in a child. Reentrant, because a signal handler may use it too.
_reopening = threading.RLock()


def register(client: Forkable) -> None:
    """Call `abandon` of this client in a forked child."""
    _clients.add(client)


def register_store(store: Pausable) -> None:
    """Pause this store while the process forks."""
    _stores.add(store)


def forget_store(store: Pausable) -> None:
    """Do not pause this store any more: nobody uses it in this process."""
    _stores.discard(store)


def one_at_a_time() -> AbstractContextManager[Any]:
    """Keeps other threads of this process from making the same client anew."""
    return _reopening


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
        _paused.append(store)  # before it has paused: an interrupt must not leave it half paused
        store.pause()


def _after() -> None:
    try:
        _resume()
    finally:
        _resume()  # what an interrupt has left, which Python ignores in such a hook
        _forking.release()


def _resume() -> None:
    while _paused:
        _paused[-1].resume()
        _paused.pop()


def _in_child() -> None:
    global _reopening
    _reopening = threading.RLock()  # a thread that the child does not have may hold the old one
    _after()
    for client in list(_clients):
        client.abandon()
    _clients.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
