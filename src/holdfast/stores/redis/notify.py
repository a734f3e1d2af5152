"""Waiting on Redis: one connection per client that is subscribed to what somebody waits for.

A script that lets somebody in publishes the record's new rev and whom: `*` on the lock's
channel, or queued tokens on the channel of the client that waits with them, so that no other
client wakes for nothing. What could get lost, and why it does not:

 1. A message between a claim's answer and its wait: the wait names the rev that the claim
    saw, and the subscriptions remember the last rev that was told.
 2. A message before the subscription was in force: when the server confirms one, the
    record's rev is looked at once and remembered, and whoever knows an older one is rung.
 3. Messages while the connection was down: all channels are subscribed anew, see 2.
 4. Anything else: who waits looks by itself when a holder runs out, and now and then.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from time import monotonic
from typing import Any

from hiredis import HiredisError
from redis.exceptions import ResponseError

from holdfast.core.contract import Version
from holdfast.errors import HoldfastError
from holdfast.stores.redis.connection import Connection
from holdfast.stores.redis.record_text import WAKE, Names, word
from holdfast.stores.redis.resp import PING, pack
from holdfast.stores.waiting.handles import LastHeard, Notify, WaitHandle, WaitHandles, started

logger = logging.getLogger("holdfast")

# After this long without a word the server is asked whether it is still there.
QUIET_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
# Nobody has read for so long: then our own thread looks what there is.
REST_S = 1.0
# With nobody asleep for so long the thread ends, and the connection with it: a client that nobody
# closed can go.
LINGER_S = 10.0
# A channel that told so often of a lock for which nobody waits here is left.
UNHEARD = 8
# So many channels are listened to at most, or as many as somebody waits for: locks come and go, and
# of most that were ever waited for nothing more is heard.
MOST_CHANNELS = 1000
# So many channels are known by their names.
REMEMBERED = 256
_ALL = [b"*"]
_REV = re.compile(rb"[0-9]{1,16}")


class _Channel:
    """What we know of one lock's channel."""

    __slots__ = ("asked", "last", "unheard")

    def __init__(self) -> None:
        self.asked = 1  # subscriptions that are not confirmed yet
        self.last = LastHeard()  # the last rev that was told, or seen
        self.unheard = 0


class Subscriptions:
    """Who waits for what, and what the server was asked to tell. No I/O; safe for threads, but
    one at a time adds or has heard, and sends what is to be sent before the next one does."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._key = lru_cache(REMEMBERED)(names.key)
        self._lock = threading.Lock()
        self._channels: dict[str, _Channel] = {}
        self.handles = WaitHandles()

    def add(self, handle: WaitHandle) -> bytes:
        """Ring this one; the answer is what to send for it."""
        self.handles.add(handle)
        with self._lock:
            channel = self._channels.get(handle.key)
            if channel is None:
                self._channels[handle.key] = _Channel()
                return self._request(b"SUBSCRIBE", [handle.key]) + self._leave_some()
            channel.unheard = 0
            missed = isinstance(handle.version, int) and channel.last.missed_by(handle.version)
        if missed:
            self._wake(handle)
        return b""

    def subscribe_anew(self) -> bytes:
        """What to send on a new connection."""
        keys = self.handles.keys()
        with self._lock:
            self._channels = {key: _Channel() for key in keys}
        return self._request(b"SUBSCRIBE", keys) if keys else b""

    def heard(self, reply: Any) -> tuple[str | None, bytes]:
        """The server said something: a lock to look at now, and what to send."""
        kind, name, what = reply[0], reply[1], reply[-1]
        if kind == b"message":
            return None, self._told(self._key(name), what)
        if kind == b"subscribe" and name.endswith(WAKE):  # the second of the two
            return self._confirmed(self._key(name)), b""
        return None, b""

    def looked(self, key: str, version: Version) -> None:
        """This is the version that is there now: ring those who know another one, also if they
        come later. What was told before the subscription nobody here has heard."""
        with self._lock:
            channel = self._channels.get(key)
            if channel is not None and isinstance(version, int):
                channel.last.hear(version)
        for handle in self.handles.handles(key):
            if handle.version != version:
                self._wake(handle)

    def notify(self, key: str) -> None:
        """Let all who wait for this lock look for themselves."""
        for handle in self.handles.handles(key):
            self._wake(handle)

    def _told(self, key: str, what: bytes) -> bytes:
        rev, *whom = what.split(b" ")
        if not _REV.fullmatch(rev):
            return b""  # anybody may publish, and this is none of ours
        told = int(rev)
        with self._lock:
            channel = self._channels.get(key)
            if channel is None:
                return b""
            channel.last.hear(told)
        handles = self.handles.handles(key)
        for handle in handles:
            if handle.mark in whom or (whom == _ALL and _is_news(told, handle.version)):
                self._wake(handle)
        return b"" if handles else self._unheard(key, channel)

    def _wake(self, handle: WaitHandle) -> None:
        self.handles.discard(handle)
        handle.notify()

    def _unheard(self, key: str, channel: _Channel) -> bytes:
        with self._lock:
            channel.unheard += 1
            if channel.unheard < UNHEARD or channel.asked or self._channels.get(key) is not channel:
                return b""
            del self._channels[key]
        return self._request(b"UNSUBSCRIBE", [key])

    def _leave_some(self) -> bytes:
        """Where there are too many channels, see to the oldest. Two for each new one, so that they
        become fewer; one that is still needed counts as new."""
        left = []
        for key in list(islice(self._channels, 2)) if len(self._channels) > MOST_CHANNELS else ():
            channel = self._channels.pop(key)
            if channel.asked or self.handles.handles(key):
                self._channels[key] = channel
            else:
                left.append(key)
        return self._request(b"UNSUBSCRIBE", left) if left else b""

    def _confirmed(self, key: str) -> str | None:
        with self._lock:
            channel = self._channels.get(key)
            if channel is None:
                return None
            channel.asked = max(0, channel.asked - 1)
        return key

    def _request(self, what: bytes, keys: list[str]) -> bytes:
        return pack(what, *(channel for key in keys for channel in self._names.channels(key)))


def _is_news(told: int, version: Version) -> bool:
    """Whether somebody who knows this version may not know what is told. It may be old news:
    nobody reads while nobody waits."""
    return not isinstance(version, int) or told > version


class Alarm:
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
    """Reads what the server says, and rings.

    One at a time reads the line. A thread of ours connects at the first wait, and reads until
    nobody sleeps. Then it rests, and whoever sleeps next reads by itself, as one thread that has
    to wake another takes longer than one that reads. Who comes while somebody reads is rung; who
    stops to read while others sleep calls our thread; and now and then it comes by itself. When
    nobody has slept for a while it hangs up, until the next wait.
    """

    def __init__(
        self, names: Names, connect: Callable[[], Connection], look: Callable[[str], Version]
    ) -> None:
        self.subscriptions = Subscriptions(names)
        self._connect = connect
        self._look = look
        self._lock = threading.Lock()  # guards what follows, and the order of what is sent
        self._line: Connection | None = None
        self._reader: object | None = None  # who reads the line: a sleeper, or this listener
        self._read = False  # since the thread last looked, a sleeper has
        self._thread: object | None = None  # stands for the thread that runs
        self._waited_at = 0.0  # when somebody was last seen to sleep
        self._called = threading.Event()
        self._closing = threading.Event()
        self._heard_at = self._asked_at = 0.0

    def register_wait(self, handle: WaitHandle) -> None:
        """Ring this one."""
        with self._lock:
            self._add(handle)
            if self._reader is None:
                self._called.set()

    def cancel_wait(self, handle: WaitHandle) -> None:
        """No longer."""
        self.subscriptions.handles.discard(handle)

    def wait(self, key: str, version: Version, token: str, seconds: float) -> None:
        """Sleep until rung, or for so long."""
        ends_at = monotonic() + seconds
        alarm = Alarm()
        handle = handle_for(key, version, token, alarm.notify)
        try:
            line = self._begin(handle)
            if line is not None:
                self._read_until(alarm, ends_at, line)
            if not alarm.notified and (left := ends_at - monotonic()) > 0:
                self._leave(handle)  # the line is broken, or somebody else reads it
                alarm.wait(left)
        finally:
            self.cancel_wait(handle)
            if self._reader is handle:
                self._leave(handle)

    def close(self) -> None:
        """Hang up, and let everyone look for themselves."""
        self._closing.set()
        self._called.set()
        with self._lock:
            if self._line is not None:
                self._line.close()
        self.subscriptions.handles.notify_all()

    def forget(self) -> Connection | None:
        """Let go of the line without touching it."""
        line, self._line = self._line, None
        return line

    # --- who reads --------------------------------------------------------------------------

    def _add(self, handle: WaitHandle) -> None:
        self._waited_at = monotonic()
        self._send(self.subscriptions.add(handle))
        if self._thread is None and not self._closing.is_set():
            self._thread = thread = object()
            if not started(lambda: self._run(thread), "holdfast-listen"):
                self._thread = None

    def _begin(self, handle: WaitHandle) -> Connection | None:
        """Add a sleeper; the line, if it is to read it."""
        with self._lock:
            self._add(handle)
            line = self._line
            if line is None or self._reader is not None or self._closing.is_set():
                return None
            self._reader = handle
            self._read = True
            return line

    def _leave(self, reader: object) -> None:
        """No longer read, if it does."""
        with self._lock:
            if self._reader is reader:
                self._reader = None
                if self.subscriptions.handles.any():
                    self._called.set()

    def _read_until(self, alarm: Alarm, ends_at: float, line: Connection) -> None:
        """In a sleeper's thread. If the line breaks, or after half a message, it is closed;
        our own thread notices."""
        try:
            while not alarm.notified and (left := ends_at - monotonic()) > 0:
                self._hear(line.read_within(left))
        except TimeoutError:
            pass
        except _BROKEN:
            line.close()
        except BaseException:
            line.close()
            raise

    # --- in our thread ----------------------------------------------------------------------

    def _run(self, thread: object) -> None:
        """Whatever ends the thread, whoever sleeps next starts another."""
        try:
            self._connect_and_listen()
        finally:
            with self._lock:
                if self._thread is thread:
                    self._thread = self._line = None

    def _connect_and_listen(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._closing.is_set():
            try:
                line = self._connect()
            except Exception as trouble:
                report_surprise(trouble)
                if self._hung_up():
                    return
                self._closing.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            pause = FIRST_PAUSE_S
            try:
                if self._listen(line):
                    line.close()
                    return
            except _Refused as why:
                logger.warning("Redis does not push wake-ups, those who wait will poll: %s", why)
                self._closing.wait(LONGEST_PAUSE_S)
            except Exception as trouble:
                report_surprise(trouble)
            with self._lock:
                self._line = None
            line.close()

    def _listen(self, line: Connection) -> bool:
        """True: nobody sleeps any more, and the line is no longer in use. False: we are closed."""
        self._heard_at, self._asked_at = monotonic(), 0.0
        with self._lock:
            if self._closing.is_set():
                return False
            self._line = line
            self._send(self.subscriptions.subscribe_anew())
        while not self._closing.is_set():
            if self._hung_up():
                return True
            with self._lock:
                if self._reader is None:
                    self._reader = self
            if self._reader is self:
                try:
                    self._attend(line)
                finally:
                    self._leave(self)
            self._rest(line)
        return False

    def _hung_up(self) -> bool:
        """Let go of the line and of our part if nobody has slept for a while. Who comes next starts
        anew."""
        now = monotonic()
        with self._lock:
            if self._reader is not None or self.subscriptions.handles.any():
                self._waited_at = now
            if now - self._waited_at < LINGER_S:
                return False
            self._thread = self._line = None
            return True

    def _attend(self, line: Connection) -> None:
        """Read until nobody sleeps and there is nothing to read."""
        while not self._closing.is_set():
            asleep = self.subscriptions.handles.any()
            try:
                self._hear(line.read_within(QUIET_S if asleep else 0.0))
            except TimeoutError:
                if not asleep:
                    return
                self._keep_in_touch(line)

    def _rest(self, line: Connection) -> None:
        """Until we are called, or nobody has read for a while."""
        while not self._called.wait(REST_S):
            if self._reader is None and not self._read:
                return
            self._read = False
            self._keep_in_touch(line)
        self._called.clear()

    def _keep_in_touch(self, line: Connection) -> None:
        """After a while without a word ask whether the server is still there."""
        now = monotonic()
        if self._asked_at:
            if now - self._asked_at >= QUIET_S:
                raise TimeoutError("the server says nothing")
        elif now - self._heard_at >= QUIET_S:
            self._asked_at = now
            line.send(PING)

    # --- what the server says ---------------------------------------------------------------

    def _hear(self, reply: Any) -> None:
        self._heard_at, self._asked_at = monotonic(), 0.0
        if isinstance(reply, ResponseError):
            raise _Refused(reply)
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
        if request and self._line is not None:
            with suppress(OSError):  # the reading thread meets it too
                self._line.send(request)


class _Refused(Exception):
    """The server does not let us subscribe."""


_BROKEN = (OSError, HiredisError, _Refused)


def report_surprise(trouble: Exception) -> None:
    """Of what a listener met, tell what nobody has foreseen. Whoever waits looks by itself until
    it listens again, and reports the store's trouble when it meets it, too."""
    if not isinstance(trouble, (HoldfastError, *_BROKEN)):
        logger.warning("Wake-ups from Redis stop for a moment: %r", trouble, exc_info=trouble)


def handle_for(key: str, version: Version, token: str, notify: Notify) -> WaitHandle:
    """A sleeper whose mark is its token as the scripts write it."""
    handle = WaitHandle(key, version, token, notify)
    handle.mark = word(token)
    return handle
