"""Wake-ups from Redis: what a client subscribes to, and whom a message concerns. No I/O.

Each client has one connection that is subscribed to the channels of the locks it waits for
(`listener_async`). A script that frees a place publishes the record's new rev and
whom it may let in: `*` on the lock's channel, or queued waiters on the channel of their client, by
hashes of their tokens, so that no other client wakes for nothing. To the heir of a lock it tells
what it has written (`holdfast.stores.waiting.notices`). Why no wake-up gets lost:

 1. A message between a claim's answer and its wait: the wait names the rev that the claim
    saw, and `Subscriptions` remembers the last rev that it was told.
 2. A message before the subscription was in force: when the server confirms a subscription,
    the listener reads the record's rev once, and notifies every waiter that knows an older one.
 3. Messages while the connection was down: the listener subscribes to all channels anew, see 2.
 4. Anything else: a waiter looks by itself when a holder runs out, and now and then.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from itertools import islice
from typing import Any

from holdfast.core.contract import Version
from holdfast.stores.redis.record_text import WAKE, Names, mark, token_text
from holdfast.stores.redis.resp import pack
from holdfast.stores.waiting.handles import LastHeard, Notify, WaitHandle, WaitHandles
from holdfast.stores.waiting.notices import read_notice

# After so many messages about a lock for which nobody waits here, its channel is left.
UNHEARD = 8
# A client listens to no more channels than this, unless its calls wait for more locks: locks come
# and go, and of most that were ever waited for nothing more is heard.
MOST_CHANNELS = 1000
# So many channels are known by their names.
REMEMBERED = 256
_ALL = [b"*"]
LONGEST_REV = 16  # digits


class _Channel:
    """What we know of one lock's channel."""

    __slots__ = ("asked", "last", "unheard")

    def __init__(self) -> None:
        self.asked = 1  # subscriptions that are not confirmed yet
        self.last = LastHeard()  # the last rev that was told, or seen
        self.unheard = 0


class Subscriptions:
    """Which calls wait for what, and which channels the server was asked for. No I/O. Safe for
    threads, but `add`, `heard` and `subscribe_anew` are called one at a time, and what one returns
    is sent before the next is called."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._key = lru_cache(REMEMBERED)(names.key)
        self._lock = threading.Lock()
        self._channels: dict[str, _Channel] = {}
        self.handles = WaitHandles()

    def add(self, handle: WaitHandle) -> bytes:
        """Notify this waiter. Returns what to send for it."""
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
        """Take in what the server said. Returns a lock to look at now, if any, and what to send."""
        kind, name, what = reply[0], reply[1], reply[-1]
        if kind == b"message":
            return None, self._told(self._key(name), what)
        if kind == b"subscribe" and name.endswith(WAKE):  # the second of the two
            return self._confirmed(self._key(name)), b""
        return None, b""

    def looked(self, key: str, version: Version) -> None:
        """This is the version that is there now: notify waiters that know another one, also if they
        come later. The messages from before the subscription were not heard."""
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
        if not rev.isdigit() or len(rev) > LONGEST_REV:
            return b""  # anybody may publish, and this is none of ours
        told = int(rev)
        with self._lock:
            channel = self._channels.get(key)
            if channel is None:
                return b""
            channel.last.hear(told)
        handles = self.handles.handles(key)
        for handle in handles:
            is_named = not handle.mark.isdisjoint(whom)
            if is_named:
                handle.found = read_notice(b" ".join(whom[1:]), token_text(handle.token))
            if is_named or (whom == _ALL and _is_news(told, handle.version)):
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
        """Leave old channels, if there are too many. Looks at the two oldest for each new one, so
        that they become fewer; one that is still needed counts as new from now on."""
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
    """Whether a message tells of something newer than this version. It may be old: while nobody
    waits, nobody reads the messages."""
    return not isinstance(version, int) or told > version


def handle_for(key: str, version: Version, token: str, notify: Notify) -> WaitHandle:
    """Returns a handle that is marked with the names by which scripts call it: a hash of its token,
    or, from clients up to 0.1.0, the token."""
    handle = WaitHandle(key, version, token, notify)
    handle.mark = {mark(token), token_text(token)}
    return handle
