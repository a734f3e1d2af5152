"""Notifies waiters on SQLite: one thread per store looks for changes while anyone waits.

`PRAGMA data_version` changes when any other connection has written, and takes a few microseconds to
read. Only when it has changed, the thread reads the rows that somebody waits for, and notifies the
waiters of those whose `turn` has changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from holdfast.core.contract import Interval
from holdfast.stores.base import entry_from
from holdfast.stores.sqlite.protocol import SQL
from holdfast.stores.sqlite.transport import Connection
from holdfast.stores.waiting.handles import WaitHandle, WaitHandles, lets_in, poll_result, started

# How long the thread sleeps between looks: shortly after a change, and at most.
FASTEST_S, SLOWEST_S, SLOWING = 0.001, 0.005, 1.02
# The thread outlives the last waiter for so long, because the next one often comes soon.
LINGER_S = 1.0
AFTER_TROUBLE_S = 0.05


class ChangePoller:
    """Notifies waiters when their keys change."""

    def __init__(self, connect: Callable[[], Connection], now: Callable[[], Interval]) -> None:
        self.handles = WaitHandles()
        self._connect = connect
        self._now = now
        self._lock = threading.Lock()
        self._news = threading.Event()  # there is a new waiter, or the store closes
        self._running = False
        self._closed = False
        self._looking = threading.Lock()  # held while the connection is in use
        self._connection: Connection | None = None
        self._paused = False

    def add(self, handle: WaitHandle) -> None:
        """Notify this waiter when its key changes."""
        self.handles.add(handle)
        with self._lock:
            if not self._running and not self._closed:
                self._running = True
                if not started(self._run, "holdfast-watch"):
                    self._running = False
        self._news.set()

    def discard(self, handle: WaitHandle) -> None:
        """Stop watching for this handle."""
        self.handles.discard(handle)

    def close(self) -> None:
        """End the thread, and notify all waiters, which then look for themselves."""
        self._closed = True
        self._news.set()
        self.handles.notify_all()

    def pause(self, at_most_s: float) -> bool:
        """Close the file before a fork. Returns False if that was not possible in time."""
        self._paused = self._looking.acquire(timeout=at_most_s)
        if self._paused and self._connection is not None:
            self._connection.pause()
            self._news.set()  # a new connection counts `data_version` anew
        return self._paused

    def resume(self) -> None:
        """Go on after the fork."""
        if self._paused:
            self._paused = False
            self._looking.release()

    def _run(self) -> None:
        try:
            with self._looking:
                self._connection = connection = self._connect()
            try:
                self._look(connection)
            finally:
                with self._looking:
                    self._connection = None
                    connection.close()
        except Exception:
            # The waiters meet the same error when they look, and report it. If they do not, the
            # pause keeps them from restarting this thread again and again.
            time.sleep(AFTER_TROUBLE_S)
            self._running = False
            self.handles.notify_all()

    def _look(self, connection: Connection) -> None:
        seen, nap, idle_s = None, FASTEST_S, 0.0
        while not self._closed:
            with self._looking:
                news = self._news.is_set()
                self._news.clear()
                (version,) = connection.run("PRAGMA data_version").fetchone()
                if news or version != seen:
                    seen, nap = version, FASTEST_S
                    self._notify_changed(connection)
            if self.handles.keys():
                idle_s = 0.0
            elif (idle_s := idle_s + nap) > LINGER_S and self._stop():
                return
            self._news.wait(nap)
            nap = min(nap * SLOWING, SLOWEST_S)

    def _stop(self) -> bool:
        with self._lock:
            if self.handles.keys():
                return False
            self._running = False
            return True

    def _notify_changed(self, connection: Connection) -> None:
        for key in self.handles.keys():
            now = self._now()
            row = connection.run(SQL["turn"], (key,)).fetchone()
            seen = None
            if row is not None:
                version, turn, raw = row
                seen = poll_result(entry_from(raw, version, now), turn)
            for handle in self.handles.handles(key):
                if lets_in(handle, seen):
                    handle.notify()
