"""Waiting on SQLite: one thread per store that looks for changes, while anyone waits.

`PRAGMA data_version` changes when any other connection has written, and costs a few
microseconds to read. Only then the rows that somebody waits for are looked at, and only
those are rung whose `turn` has changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from holdfast.core.contract import Interval
from holdfast.stores.base import entry_from
from holdfast.stores.sqlite.file import SQL, Connection
from holdfast.stores.waiting.handles import WaitHandle, WaitHandles, lets_in, poll_result, started

# Fast while something happens, slower when it is quiet.
FASTEST_S, SLOWEST_S, SLOWING = 0.001, 0.005, 1.02
# With nobody waiting the thread stays for a moment, because the next one is often near.
LINGER_S = 1.0
AFTER_TROUBLE_S = 0.05


class Watch:
    """Rings sleepers when their keys change."""

    def __init__(self, connect: Callable[[], Connection], now: Callable[[], Interval]) -> None:
        self.handles = WaitHandles()
        self._connect = connect
        self._now = now
        self._lock = threading.Lock()
        self._news = threading.Event()  # somebody new sleeps, or the store closes
        self._running = False
        self._closed = False
        self._looking = threading.Lock()  # held while the connection is in use
        self._connection: Connection | None = None
        self._paused = False

    def add(self, handle: WaitHandle) -> None:
        """Ring this one when its key changes."""
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
        """End the thread, and let everyone look for themselves."""
        self._closed = True
        self._news.set()
        self.handles.notify_all()

    def pause(self, at_most_s: float) -> bool:
        """Before a fork: let go of the file. False: that was not possible."""
        self._paused = self._looking.acquire(timeout=at_most_s)
        if self._paused and self._connection is not None:
            self._connection.pause()
            self._news.set()  # a new connection does not know what the old one had seen
        return self._paused

    def resume(self) -> None:
        """After it."""
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
            # The sleepers will meet the same trouble, and report it, when they look. If they
            # do not, the pause keeps them from coming back at once, again and again.
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
                    self._ring_changed(connection)
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

    def _ring_changed(self, connection: Connection) -> None:
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
