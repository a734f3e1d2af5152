# Made from listener_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Reads wake-ups from Redis: in a task of the event loop, or in a thread. See `notify` for what is
read.

The listener starts with the first wait. It ends, and closes its connection, when nobody has waited
for a while: so a client that nobody closed can go.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock
from time import monotonic
from typing import Any

from redis.exceptions import ResponseError

from holdfast.core.contract import Version
from holdfast.errors import HoldfastError
from holdfast.runtime import fork_hooks
from holdfast.stores.redis.connection import Connection
from holdfast.stores.redis.notify import Subscriptions
from holdfast.stores.redis.record_text import Names
from holdfast.stores.redis.resp import PING
from holdfast.stores.waiting.handles import WaitHandle, started

logger = logging.getLogger("holdfast")

# A listener that heard nothing for this long asks whether the server is still there.
QUIET_S = 5.0
# And it ends after nobody has waited for this long.
LINGER_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0


_listening: weakref.WeakSet[Connection] = weakref.WeakSet()


@fork_hooks.in_child
def _in_child() -> None:
    """With a copy in the child a client would seem to listen when its process was killed, and
    inherit locks."""
    for connection in list(_listening):
        connection.let_go()


class Refused(Exception):
    """The server does not let us subscribe."""


class Listener:
    """Reads what the server publishes, and notifies those who wait."""

    def __init__(
        self,
        names: Names,
        connect: Callable[[], Connection],
        look: Callable[[str], Version],
    ) -> None:
        self.subscriptions = Subscriptions(names)
        self._connect = connect
        self._look = look
        self._closing = Event()
        self._lock = Lock()  # guards what follows, and the order of what is sent
        self._connection: Connection | None = None
        self._running: object | None = None  # stands for the task or thread
        self._waited_at = 0.0  # when somebody was last seen to wait

    def register_wait(self, handle: WaitHandle) -> None:
        """Notify this waiter."""
        with self._lock:
            self._waited_at = monotonic()
            self._send(self.subscriptions.add(handle))
            if self._running is None and not self._closing.is_set():
                self._start()

    def cancel_wait(self, handle: WaitHandle) -> None:
        """Notify this waiter no longer."""
        self.subscriptions.handles.discard(handle)

    def close(self) -> None:
        """Close the connection, and let every waiter look by itself."""
        self._closing.set()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
        self.subscriptions.handles.notify_all()

    def forget(self) -> Connection | None:
        """Returns the connection without touching it, for a forked child to keep."""
        connection, self._connection = self._connection, None
        return connection

    # --- in its own task or thread ----------------------------------------------------------

    def _start(self) -> None:
        self._running = me = object()
        if not started(lambda: self._run(me), "holdfast-listen"):
            self._running = None

    def _run(self, me: object) -> None:
        """Whatever ends it, the next wait starts another."""
        pause_s = FIRST_PAUSE_S
        try:
            while self._is_wanted():
                try:
                    connection = self._connect()
                    pause_s = FIRST_PAUSE_S
                    self._listen(connection)
                except Exception as trouble:
                    pause_s = LONGEST_PAUSE_S if isinstance(trouble, Refused) else pause_s
                    _report(trouble)
                    self._closing.wait(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        finally:
            if self._running is me:
                self._running = None

    def _is_wanted(self) -> bool:
        """Whether somebody has waited lately. If not, the next wait starts another listener."""
        with self._lock:
            now = monotonic()
            if self.subscriptions.handles.any():
                self._waited_at = now
            wanted = now - self._waited_at < LINGER_S and not self._closing.is_set()
            if not wanted:
                self._running = self._connection = None
            return wanted

    def _listen(self, connection: Connection) -> None:
        """Read until nobody waits any more, or until the connection breaks."""
        try:
            _listening.add(connection)
            with self._lock:
                self._connection = connection
                self._send(self.subscriptions.subscribe_anew())
            asked = False
            while self._is_wanted():
                try:
                    reply = connection.read_within(QUIET_S)
                    asked = False
                except TimeoutError:
                    if asked:
                        raise
                    asked = True
                    with self._lock:
                        self._send(PING)
                else:
                    self._hear(reply)
        finally:
            if self._connection is connection:
                self._connection = None
            connection.close()

    def _hear(self, reply: Any) -> None:
        if isinstance(reply, ResponseError):
            raise Refused(reply)
        with self._lock:
            key, request = self.subscriptions.heard(reply)
            self._send(request)
        if key is not None:
            try:
                self.subscriptions.looked(key, self._look(key))
            except HoldfastError:
                self.subscriptions.notify(key)

    def _send(self, request: bytes) -> None:
        if request and self._connection is not None:
            with suppress(OSError):  # who reads meets it too
                self._connection.send(request)


def _report(trouble: Exception) -> None:
    """Log what a listener met, if nobody has foreseen it. Waiters look by themselves until the
    listener is back, and report the store's trouble when they meet it."""
    if isinstance(trouble, Refused):
        logger.warning("Redis does not push wake-ups, so those who wait poll: %s", trouble)
    elif not isinstance(trouble, (HoldfastError, OSError)):
        logger.warning("Wake-ups from Redis stop for a moment: %r", trouble, exc_info=trouble)
