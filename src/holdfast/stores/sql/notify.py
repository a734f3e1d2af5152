"""Waiting by listening: PostgreSQL's NOTIFY, received by one thread with one connection.

How it works:

 1. While anybody waits, a connection of its own LISTENs. Each write that may let somebody in
    notifies with its version, whom it may let in, and the key. Every role of the database can
    receive that and send the same: so it has no secrets, and a waiter that is woken looks for
    itself.
 2. A notification that comes between a waiter's look and its wait is not lost: the listener
    remembers the last versions, and wakes a waiter that knows an older one at once.
 3. The listener is *live* from when it has received a notification of its own. Behind a pooler
    in transaction mode it never does (LISTEN belongs to a session); it is tried again later.
 4. A waiter relies on NOTIFY only if it registered at least SETTLING_S after the listener went
    live. Earlier waiters are also polled for: they may have looked before LISTEN took effect. So
    are all waiters when the listener stops.
 5. Whatever stops the listener, it starts again while somebody waits. It needs nothing that
    others have: where no further connection can be had, those for statements stay as they are.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from os import urandom
from typing import Any

from holdfast.core.commands import ANYONE
from holdfast.stores.sql.codec import notification_of
from holdfast.stores.sql.io_timeout import shut_down
from holdfast.stores.sql.protocol import Query
from holdfast.stores.sql.transport import Transport
from holdfast.stores.waiting.handles import LastHeard, WaitHandle, WaitHandles, started
from holdfast.stores.waiting.herd import HerdDamper
from holdfast.stores.waiting.local_poller import LocalPoller

PROBE_S = 3.0
DEAF_FOR_S = 300.0  # how long it is not tried again where notifications do not get through
# With nobody waiting the connection stays open for a while, because a new one is not for free.
LINGER_S = 20.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
REMEMBERED = 10_000
SETTLING_S = 1.0
CHECK_S = 0.5  # how often the thread checks whether anybody still waits

logger = logging.getLogger("holdfast")


class NotifyListener:
    """Wakes waiters when PostgreSQL notifies."""

    def __init__(self, transport: Transport, dialect: Any, poller: LocalPoller) -> None:
        self.handles = WaitHandles()
        self._herd = HerdDamper()
        self._poller = poller
        self.live = False
        self._trusted_at = 0.0  # from when on waiters rely on it, once it is live
        self._deaf_until = 0.0
        self._warned = False
        self._transport = transport
        self._dialect = dialect
        self._lock = threading.Lock()
        self._last: OrderedDict[str, LastHeard] = OrderedDict()  # the last version, by key
        self._running = False
        self._closed = threading.Event()
        self._listening: Any = None  # the driver's connection

    @property
    def deaf(self) -> bool:
        """Whether notifications were found not to get through, a while ago at most."""
        return time.monotonic() < self._deaf_until

    def add(self, handle: WaitHandle, own: socket.socket | None = None) -> None:
        """Wake this one when it may be let in; at once if it has missed something. `own` is its
        socket for wake-ups from this machine."""
        self.handles.add(handle)
        if not self.live or time.monotonic() < self._trusted_at:
            self._poller.add(handle, own)
        with self._lock:
            self._herd.registered(handle)
            start = not (self._running or self.deaf or self._closed.is_set())
            self._running = self._running or start
        if start and not started(self._run, "holdfast-listen"):
            self._running = False
        last = self._last.get(handle.key)
        if last is not None and last.missed_by(handle.version or 0):
            handle.notify()

    def discard(self, handle: WaitHandle) -> None:
        """Stop waking this one."""
        self.handles.discard(handle)
        self._poller.discard(handle)
        with self._lock:
            self._herd.cancelled(handle)

    def close(self) -> None:
        """End the thread. The poller wakes everyone."""
        self._closed.set()
        if self._listening is not None:
            shut_down(self._listening)

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        pause, over = FIRST_PAUSE_S, False
        while not over:
            started_at = time.monotonic()
            try:
                self._listen()
            except Exception as exc:  # waiters meet the same trouble, and report it
                if not self._closed.is_set():
                    logger.info("Listening at %s ended: %s", self._transport.place, exc)
            self._hand_over_to_poller()
            with self._lock:
                over = self._closed.is_set() or self.deaf or not self.handles.keys()
                self._running = not over
            if not over:
                lasted = time.monotonic() - started_at > LONGEST_PAUSE_S
                pause = FIRST_PAUSE_S if lasted else min(2 * pause, LONGEST_PAUSE_S)
                self._closed.wait(pause)

    def _listen(self) -> None:
        """Listen until the connection breaks, nobody waits any more, or the store is closed."""
        connection = self._transport.open_apart(self._transport.ends_at())
        try:
            self._listening = connection.driver
            listen = Query(f'LISTEN "{self._dialect.channel}"', shows=False)
            self._transport.ask(connection, listen, self._transport.ends_at())
            if self._receives_its_own():
                self._trusted_at = time.monotonic() + SETTLING_S
                self.live = True
                self._receive(self._wake, self._nobody_waits())
            elif not self._closed.is_set():
                self._deaf_until = time.monotonic() + DEAF_FOR_S
                self._warn()
        finally:
            self._listening = None
            with suppress(Exception):
                connection.terminate()

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "%s: notifications do not get through (is this a pooler in transaction "
                "mode?); waiting by polling. ?wakeup=poll says so from the start.",
                self._transport.place,
            )

    def _receives_its_own(self) -> bool:
        """Returns whether what another connection sends arrives here."""
        probe, received = f"probe {urandom(8).hex()}", list[str]()
        self._transport.run(self._dialect.notify_queries(probe))
        ends_at = time.monotonic() + PROBE_S
        self._receive(received.append, lambda: probe in received or time.monotonic() > ends_at)
        return probe in received

    def _receive(self, tell: Callable[[str], object], is_over: Callable[[], bool]) -> None:
        # Through psycopg's wrapper of libpq: its own way to listen costs several times as much.
        libpq, encoding = self._listening.pgconn, self._listening.info.encoding
        poll = select.poll()
        poll.register(libpq.socket, select.POLLIN)
        while not (self._closed.is_set() or is_over()):
            with self._lock:
                next_at = self._herd.next_at()
            seconds = CHECK_S if next_at is None else max(0.0, next_at - time.monotonic())
            poll.poll(seconds * 1000)
            libpq.consume_input()
            while (notification := libpq.notifies()) is not None:
                tell(notification.extra.decode(encoding))
            with self._lock:
                overdue = self._herd.overdue(time.monotonic())
            for handle in overdue:
                handle.notify()

    def _nobody_waits(self) -> Callable[[], bool]:
        """Returns what says whether nobody has waited for a while."""
        last_waited = time.monotonic()

        def is_over() -> bool:
            nonlocal last_waited
            if self.handles.keys():
                last_waited = time.monotonic()
            return time.monotonic() - last_waited > LINGER_S

        return is_over

    def _wake(self, payload: str) -> None:
        try:
            told = notification_of(payload)
        except ValueError:
            return  # a probe, or somebody's own notification
        self._last.setdefault(told.key, LastHeard()).hear(told.version)
        self._last.move_to_end(told.key)
        if len(self._last) > REMEMBERED:
            self._last.popitem(last=False)
        handles = self.handles.handles(told.key)
        if handles and told.whom == ANYONE:
            with self._lock:
                handles = self._herd.answering(told.key, handles, time.monotonic())
        for handle in handles:
            # It may be old news: who waits on the same machine is woken without it.
            if told.is_for(handle.token) and told.version > (handle.version or 0):
                handle.notify()

    def _hand_over_to_poller(self) -> None:
        self.live = False
        self._last.clear()
        for key in self.handles.keys():
            for handle in self.handles.handles(key):
                self._poller.add(handle)
