"""Reads wake-ups from Redis in threads. See `notify` for what is read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from redis.exceptions import ResponseError

from holdfast.core.contract import Version
from holdfast.errors import HoldfastError
from holdfast.stores.redis.connection import Connection
from holdfast.stores.redis.notify import (
    BROKEN,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    QUIET_S,
    Refused,
    Subscriptions,
    handle_for,
    logger,
    report_surprise,
)
from holdfast.stores.redis.record_text import Names
from holdfast.stores.redis.resp import PING
from holdfast.stores.waiting.handles import WaitHandle, started

# The listener's own thread looks for messages after nobody has read for this long.
REST_S = 1.0
# The thread ends, and closes its connection, after nobody has waited for this long: a client that
# nobody closed can go.
LINGER_S = 10.0


class LazyEvent:
    """An event that costs little until somebody waits for it."""

    __slots__ = ("_event", "notified")

    def __init__(self) -> None:
        self.notified = False
        self._event: threading.Event | None = None

    def notify(self) -> None:
        """From any thread."""
        self.notified = True
        if self._event is not None:
            self._event.set()

    def wait(self, seconds: float) -> None:
        """Only for one."""
        self._event = threading.Event()
        if not self.notified:
            self._event.wait(seconds)


class Listener:
    """Reads what the server publishes, and notifies waiters.

    One thread at a time reads the connection. The listener's own thread connects at the first wait
    and reads until nobody waits. Then it rests, and the next waiter reads by itself: waking another
    thread takes longer than reading. A waiter that comes while another one reads is notified by
    that one; a reader that stops while others still wait calls the listener's thread, which also
    comes by itself now and then. When nobody has waited for a while, the thread ends and closes the
    connection, until the next wait.
    """

    def __init__(
        self, names: Names, connect: Callable[[], Connection], look: Callable[[str], Version]
    ) -> None:
        self.subscriptions = Subscriptions(names)
        self._connect = connect
        self._look = look
        self._lock = threading.Lock()  # guards what follows, and the order of what is sent
        self._connection: Connection | None = None
        self._reader: object | None = (
            None  # who reads the connection: a waiter's handle, or this listener
        )
        self._read = False  # a waiter has read since the thread last looked
        self._thread: object | None = None  # stands for the thread that runs
        self._waited_at = 0.0  # when somebody was last seen to wait
        self._called = threading.Event()
        self._closing = threading.Event()
        self._heard_at = self._asked_at = 0.0

    def register_wait(self, handle: WaitHandle) -> None:
        """Notify this waiter."""
        with self._lock:
            self._add(handle)
            if self._reader is None:
                self._called.set()

    def cancel_wait(self, handle: WaitHandle) -> None:
        """Notify this waiter no longer."""
        self.subscriptions.handles.discard(handle)

    def wait(self, key: str, version: Version, token: str, seconds: float) -> None:
        """Wait until notified, or for this long."""
        ends_at = monotonic() + seconds
        event = LazyEvent()
        handle = handle_for(key, version, token, event.notify)
        try:
            connection = self._begin(handle)
            if connection is not None:
                self._read_until(event, ends_at, connection)
            if not event.notified and (left := ends_at - monotonic()) > 0:
                self._leave(handle)  # it is broken, or another one reads it
                event.wait(left)
        finally:
            self.cancel_wait(handle)
            if self._reader is handle:
                self._leave(handle)

    def close(self) -> None:
        """Close the connection, and let every waiter look by itself."""
        self._closing.set()
        self._called.set()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
        self.subscriptions.handles.notify_all()

    def forget(self) -> Connection | None:
        """Returns the connection without touching it, for a forked child to keep."""
        connection, self._connection = self._connection, None
        return connection

    # --- who reads --------------------------------------------------------------------------

    def _add(self, handle: WaitHandle) -> None:
        self._waited_at = monotonic()
        self._send(self.subscriptions.add(handle))
        if self._thread is None and not self._closing.is_set():
            self._thread = thread = object()
            if not started(lambda: self._run(thread), "holdfast-listen"):
                self._thread = None

    def _begin(self, handle: WaitHandle) -> Connection | None:
        """Add a waiter. Returns the connection if this waiter is to read it."""
        with self._lock:
            self._add(handle)
            connection = self._connection
            if connection is None or self._reader is not None or self._closing.is_set():
                return None
            self._reader = handle
            self._read = True
            return connection

    def _leave(self, reader: object) -> None:
        """Stop reading, if this one reads."""
        with self._lock:
            if self._reader is reader:
                self._reader = None
                if self.subscriptions.handles.any():
                    self._called.set()

    def _read_until(self, event: LazyEvent, ends_at: float, connection: Connection) -> None:
        """In a waiter's thread. Closes the connection if it breaks, or after half a message; the
        listener's own thread notices that."""
        try:
            while not event.notified and (left := ends_at - monotonic()) > 0:
                self._hear(connection.read_within(left))
        except TimeoutError:
            pass
        except BROKEN:
            connection.close()
        except BaseException:
            connection.close()
            raise

    # --- in its own thread ----------------------------------------------------------------------

    def _run(self, thread: object) -> None:
        """Whatever ends the thread, the next waiter starts another."""
        try:
            self._connect_and_listen()
        finally:
            with self._lock:
                if self._thread is thread:
                    self._thread = self._connection = None

    def _connect_and_listen(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._closing.is_set():
            try:
                connection = self._connect()
            except Exception as trouble:
                report_surprise(trouble)
                if self._gave_up():
                    return
                self._closing.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            pause = FIRST_PAUSE_S
            try:
                if self._listen(connection):
                    connection.close()
                    return
            except Refused as why:
                logger.warning("Redis does not push wake-ups, those who wait will poll: %s", why)
                self._closing.wait(LONGEST_PAUSE_S)
            except Exception as trouble:
                report_surprise(trouble)
            with self._lock:
                self._connection = None
            connection.close()

    def _listen(self, connection: Connection) -> bool:
        """Returns True when nobody waits any more, and False when the listener was closed."""
        self._heard_at, self._asked_at = monotonic(), 0.0
        with self._lock:
            if self._closing.is_set():
                return False
            self._connection = connection
            self._send(self.subscriptions.subscribe_anew())
        while not self._closing.is_set():
            if self._gave_up():
                return True
            with self._lock:
                if self._reader is None:
                    self._reader = self
            if self._reader is self:
                try:
                    self._attend(connection)
                finally:
                    self._leave(self)
            self._rest(connection)
        return False

    def _gave_up(self) -> bool:
        """Give up connection and thread if nobody has waited for long. Returns whether it did."""
        now = monotonic()
        with self._lock:
            if self._reader is not None or self.subscriptions.handles.any():
                self._waited_at = now
            if now - self._waited_at < LINGER_S:
                return False
            self._thread = self._connection = None
            return True

    def _attend(self, connection: Connection) -> None:
        """Read until nobody waits and there is nothing to read."""
        while not self._closing.is_set():
            waited_for = self.subscriptions.handles.any()
            try:
                self._hear(connection.read_within(QUIET_S if waited_for else 0.0))
            except TimeoutError:
                if not waited_for:
                    return
                self._keep_in_touch(connection)

    def _rest(self, connection: Connection) -> None:
        """Rest until called, or until nobody has read for a while."""
        while not self._called.wait(REST_S):
            if self._reader is None and not self._read:
                return
            self._read = False
            self._keep_in_touch(connection)
        self._called.clear()

    def _keep_in_touch(self, connection: Connection) -> None:
        """Ask whether the server is still there if it has said nothing for a while."""
        now = monotonic()
        if self._asked_at:
            if now - self._asked_at >= QUIET_S:
                raise TimeoutError("the server says nothing")
        elif now - self._heard_at >= QUIET_S:
            self._asked_at = now
            connection.send(PING)

    # --- what the server says ---------------------------------------------------------------

    def _hear(self, reply: Any) -> None:
        self._heard_at, self._asked_at = monotonic(), 0.0
        if isinstance(reply, ResponseError):
            raise Refused(reply)
        if not isinstance(reply, list):
            return
        with self._lock:
            key, request = self.subscriptions.heard(reply)
            self._send(request)
        if key is not None:
            self._check(key)

    def _check(self, key: str) -> None:
        try:
            self.subscriptions.looked(key, self._look(key))
        except HoldfastError:
            self.subscriptions.notify(key)

    def _send(self, request: bytes) -> None:
        if request and self._connection is not None:
            with suppress(OSError):  # the reading thread meets it too
                self._connection.send(request)
