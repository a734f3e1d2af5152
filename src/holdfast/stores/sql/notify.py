"""Waiting by listening: PostgreSQL's NOTIFY, received by one thread with one connection.

How it works:

 1. While anybody waits, a connection of its own LISTENs. Each write that may let somebody in
    notifies with its version, whom it may let in, and the key. Every role of the database can
    receive that and send the same: so it has no secrets, and a waiter that is woken looks for
    itself.
 2. A notification that comes between a waiter's look and its wait is not lost: the listener
    remembers the last versions, and wakes a waiter that knows an older one at once.
 3. The bell is *live* from when it has heard itself. Behind a pooler in transaction mode
    it never does (LISTEN belongs to a session), and then it does not try again for a while.
 4. Only who goes to sleep while it is live relies on it; whoever slept before is polled
    for, and so is who goes to sleep right after, as its look may have been before. When it
    dies, its sleepers are polled for. So nobody waits for a bell that does not ring.
 5. Whatever ends it, it is tried again while somebody sleeps. And it needs nothing that others
    have: where no further connection can be had, those who run statements keep theirs.
"""

from __future__ import annotations

import logging
import select
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
from holdfast.stores.sql.postgres import PostgreSQLDialect
from holdfast.stores.sql.protocol import Query
from holdfast.stores.sql.transport import Transport
from holdfast.stores.waiting.handles import LastHeard, WaitHandle, Wakeups, started
from holdfast.stores.waiting.herd import HerdDamper
from holdfast.stores.waiting.poller import Poller

PROBE_S = 3.0
DEAF_FOR_S = 300.0  # so long it is not tried again where notifications do not get through
# With nobody waiting the connection stays for a while, because a new one is not for free.
LINGER_S = 20.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
REMEMBERED = 10_000
SETTLING_S = 1.0  # after this nobody goes to sleep who has looked before it was live
LOOK_UP_S = 0.5  # how often it is looked whether anybody still sleeps

logger = logging.getLogger("holdfast")


class NotifyListener:
    """Rings sleepers when PostgreSQL notifies."""

    def __init__(self, transport: Transport, dialect: PostgreSQLDialect, poller: Poller) -> None:
        self.handles = Wakeups()
        self._crowd = HerdDamper()
        self._poller = poller
        self.live = False
        self._trusted_at = 0.0  # from when on, once it is live, who sleeps may rely on it
        self._deaf_until = 0.0  # notifications do not get through here
        self._told_deaf = False
        self._transport = transport
        self._dialect = dialect
        self._lock = threading.Lock()
        self._last: OrderedDict[str, LastHeard] = OrderedDict()  # the version heard last, by key
        self._running = False
        self._closed = threading.Event()
        self._listening: Any = None  # the driver's connection

    @property
    def deaf(self) -> bool:
        """Whether notifications were found not to get through, a while ago at most."""
        return time.monotonic() < self._deaf_until

    def add(self, handle: WaitHandle) -> None:
        """Ring this one; at once if it has missed something."""
        self.handles.add(handle)
        if not self.live or time.monotonic() < self._trusted_at:
            self._poller.add(handle)
        with self._lock:
            self._crowd.slept(handle)
            start = not (self._running or self.deaf or self._closed.is_set())
            self._running = self._running or start
        if start and not started(self._run, "holdfast-listen"):
            self._running = False
        told = self._last.get(handle.key)
        if told is not None and told.missed_by(handle.version or 0):
            handle.ring()

    def discard(self, handle: WaitHandle) -> None:
        """No longer."""
        self.handles.discard(handle)
        self._poller.discard(handle)
        with self._lock:
            self._crowd.woke(handle)

    def close(self) -> None:
        """End the thread. The poller lets everyone look for themselves."""
        self._closed.set()
        if self._listening is not None:
            shut_down(self._listening)

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            started = time.monotonic()
            try:
                self._listen()
            except Exception as exc:
                # Whatever it was: the sleepers meet it, and report it, when they look.
                if not self._closed.is_set():
                    logger.info("Listening at %s ended: %s", self._transport.place, exc)
            self._fall_silent()
            if self._is_over():
                return
            if time.monotonic() - started > LONGEST_PAUSE_S:
                pause = FIRST_PAUSE_S
            self._closed.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _listen(self) -> None:
        """Listen until the connection breaks, nobody sleeps any more, or we are closed."""
        connection = self._transport.open_apart()
        try:
            self._listening = connection.driver
            self._transport.ask(connection, Query(f'LISTEN "{self._dialect.channel}"', shows=False))
            if self._hears_itself():
                self._trusted_at = time.monotonic() + SETTLING_S
                self.live = True
                self._hear(self._ring, self._nobody_sleeps())
            elif not self._closed.is_set():
                self._deaf_until = time.monotonic() + DEAF_FOR_S
                self._tell_deaf()
        finally:
            self._listening = None
            with suppress(Exception):
                connection.terminate()

    def _tell_deaf(self) -> None:
        if not self._told_deaf:
            self._told_deaf = True
            logger.warning(
                "%s: notifications do not get through (is this a pooler in transaction "
                "mode?); waiting by polling. ?wakeup=poll says so from the start.",
                self._transport.place,
            )

    def _hears_itself(self) -> bool:
        """Whether what is said on another connection arrives here."""
        word, said = f"probe {urandom(8).hex()}", list[str]()
        self._transport.run(self._dialect.notify_queries(word))
        ends_at = time.monotonic() + PROBE_S
        self._hear(said.append, lambda: word in said or time.monotonic() > ends_at)
        return word in said

    def _hear(self, tell: Callable[[str], object], is_over: Callable[[], bool]) -> None:
        # Straight from libpq: psycopg's own way of listening costs several times as much.
        line, encoding = self._listening.pgconn, self._listening.info.encoding
        poll = select.poll()
        poll.register(line.socket, select.POLLIN)
        while not (self._closed.is_set() or is_over()):
            poll.poll(self._nap_s() * 1000)
            line.consume_input()
            while (notification := line.notifies()) is not None:
                tell(notification.extra.decode(encoding))
            self._make_up()

    def _nobody_sleeps(self) -> Callable[[], bool]:
        """Whether nobody has slept for a while."""
        last_slept = time.monotonic()

        def is_over() -> bool:
            nonlocal last_slept
            if self.handles.keys():
                last_slept = time.monotonic()
            return time.monotonic() - last_slept > LINGER_S

        return is_over

    def _ring(self, payload: str) -> None:
        try:
            news = notification_of(payload)
        except ValueError:
            return  # a probe, or somebody's own notification
        self._last.setdefault(news.key, LastHeard()).hear(news.version)
        self._last.move_to_end(news.key)
        if len(self._last) > REMEMBERED:
            self._last.popitem(last=False)
        handles = self.handles.handles(news.key)
        if not handles:
            return
        if news.whom == ANYONE:
            with self._lock:
                handles = self._crowd.answering(news.key, handles, time.monotonic())
        else:
            handles = [handle for handle in handles if news.is_for(handle.token)]
        for handle in handles:
            handle.ring()

    def _nap_s(self) -> float:
        """How long nothing but a notification has to be done."""
        with self._lock:
            next_at = self._crowd.next_at()
        return LOOK_UP_S if next_at is None else max(0.0, next_at - time.monotonic())

    def _make_up(self) -> None:
        """Ring those who were passed over a moment ago."""
        with self._lock:
            overdue = self._crowd.overdue(time.monotonic())
        for handle in overdue:
            handle.ring()

    def _fall_silent(self) -> None:
        self.live = False
        self._last.clear()
        for key in self.handles.keys():
            for handle in self.handles.handles(key):
                self._poller.add(handle)

    def _is_over(self) -> bool:
        with self._lock:
            over = self._closed.is_set() or self.deaf or not self.handles.keys()
            self._running = not over
            return over
