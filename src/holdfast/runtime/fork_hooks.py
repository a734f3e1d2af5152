"""After a fork the child holds nothing: clients of before the fork are told in the child.

Stores whose connections must not be open across a fork are told before it, and after it on
both sides.
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
        """This is the child, and everything here is the parent's."""


class Pausable(Protocol):
    """A store that must let go of its connections for a fork. Neither may raise."""

    def pause(self) -> None:
        """Finish what is under way, let go of the connections, and let nobody begin."""

    def resume(self) -> None:
        """The fork is over, and this is the parent or the child."""


_clients: weakref.WeakSet[Forkable] = weakref.WeakSet()
_stores: weakref.WeakSet[Pausable] = weakref.WeakSet()
# One fork at a time, and none while a store opens. A thread never waits for itself here: a signal
# handler may fork in the middle of anything.
_forking = threading.RLock()
_paused: list[Pausable] = []


def register(client: Forkable) -> None:
    """Tell this client if it comes to find itself in a child."""
    _clients.add(client)


def register_store(store: Pausable) -> None:
    """Pause this store while the process forks."""
    _stores.add(store)


def held_off() -> AbstractContextManager[Any]:
    """No other thread forks meanwhile: a store is open before it can be told to pause."""
    return _forking


def in_child(call: Callable[[], None]) -> Callable[[], None]:
    """Call this in every child, for what a module must not share with the parent."""
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
