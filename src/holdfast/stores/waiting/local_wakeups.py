"""Wakes calls that wait in other processes of this machine, at no cost while they wait.

1. A waiting call has a datagram socket. Its name is a digest of the call's token, so the party that
   frees the lock can compute the name from the record's queue, and nobody can compute the token
   from the name.
2. The name is an *abstract* one of Linux: there is no file, and it is gone with its process.
3. If the release was the grant of that call, the wake-up brings a notice of it (see `notices`). Any
   other wake-up is only a reason to look. Anybody on the machine can send one, and it may get lost.
4. Where wake-ups cannot work, polling finds the change: on other systems, from another network
   namespace, in a process that has no descriptor left or many calls that wait.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
import weakref
from collections.abc import Iterable
from contextlib import suppress

from holdfast.core.contract import Inherited
from holdfast.core.records import Record
from holdfast.runtime import fork_hooks
from holdfast.stores.waiting.handles import WaitHandle
from holdfast.stores.waiting.notices import LONGEST, notice_of, read_notice

# So many calls of one store have a socket; the others are polled for.
MOST_SOCKETS = 64
# So many wake-ups are read at a time: a sender without end must not keep us from looking.
MOST_READ = 16
_LOOK = b"1"


def address_of(token: str) -> bytes:
    """Returns the name of the socket of the call that waits with this token."""
    from hashlib import blake2b  # brings all of OpenSSL: not for programs that never wait

    return b"\0holdfast/" + blake2b(token.encode(), digest_size=16).hexdigest().encode()


def wake(tokens: Iterable[str], written: Record | None = None) -> None:
    """Wake the calls that wait with these tokens, as far as they can be reached. `written` is the
    record for which they are woken, if it was surely written: it may be the grant of one."""
    if sys.platform != "linux":
        return
    with suppress(OSError), _datagram_socket() as sender:  # if there is no descriptor left
        for token in tokens:
            with suppress(OSError):  # nobody waits there, or it was woken often enough
                notice = b"" if written is None else notice_of(written, token)
                sender.sendto(notice or _LOOK, address_of(token))


def wait_for_wake(opened: socket.socket, token: str, seconds: float) -> Inherited | None:
    """Block until a wake-up arrives at the socket of this token, or for a time. Returns what it
    has brought."""
    poll = select.poll()
    poll.register(opened, select.POLLIN)
    return read_wake_ups(opened, token) if poll.poll(1000 * seconds) else None


def interrupt(opened: socket.socket) -> None:
    """End the wait at this socket, from any thread. A datagram could reach the next wait."""
    with suppress(OSError):  # it was closed meanwhile
        opened.shutdown(socket.SHUT_RD)


def waits_here(token: str) -> bool:
    """Returns whether a call waits with this token on this machine, where `wake` reaches it."""
    if sys.platform != "linux":
        return False
    try:
        with _datagram_socket() as sender:
            sender.connect(address_of(token))
    except OSError:
        return False
    return True


def _datagram_socket() -> socket.socket:
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    opened.setblocking(False)
    return opened


def open_socket(token: str) -> socket.socket | None:
    """Returns the socket of a call that waits with this token; None where it cannot have one."""
    if sys.platform != "linux":
        return None
    try:
        opened = _datagram_socket()
    except OSError:
        return None
    try:
        opened.bind(address_of(token))
    except OSError:
        opened.close()
        return None
    _sockets.add(opened)
    return opened


def read_wake_ups(opened: socket.socket, token: str) -> Inherited | None:
    """Read what has arrived at the socket of this token, up to the first notice. Returns what that
    has brought."""
    with suppress(OSError):  # that was all
        for _ in range(MOST_READ):
            notice = opened.recv(LONGEST + 1)  # what is longer is cut off, and proves nothing
            brought = read_notice(notice, token.encode())
            if brought is not None or not notice:
                return brought
    return None


class Inbox:
    """Where the wake-ups for this process arrive. One thread waits; any thread may do the rest."""

    def __init__(self) -> None:
        self._news = threading.Event()

    def open(self, handle: WaitHandle) -> None:
        """Let others wake this call."""

    def forget(self, handle: WaitHandle) -> None:
        """Let nobody wake this call any more."""

    def wait(self, seconds: float) -> list[WaitHandle]:
        """Wait for a time, or until there is something. Returns the calls that were woken."""
        self._news.wait(seconds)
        self._news.clear()
        return []

    def interrupt(self) -> None:
        """Make `wait` return."""
        self._news.set()

    def close(self) -> None:
        """Close all sockets."""


class LinuxInbox(Inbox):
    """The same with sockets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: dict[WaitHandle, socket.socket] = {}
        self._handles: dict[int, WaitHandle] = {}
        self._epoll = select.epoll()
        try:
            self._interrupt_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            self._epoll.close()
            raise
        self._epoll.register(self._interrupt_fd, select.EPOLLIN)
        _inboxes.add(self)

    def open(self, handle: WaitHandle) -> None:
        """Let others wake this call. If that is impossible, it is polled for."""
        with self._lock:
            opened = open_socket(handle.token) if len(self._sockets) < MOST_SOCKETS else None
            if opened is not None:
                self._epoll.register(opened, select.EPOLLIN)
                self._sockets[handle], self._handles[opened.fileno()] = opened, handle

    def forget(self, handle: WaitHandle) -> None:
        """Close the socket of this call."""
        with self._lock:
            opened = self._sockets.pop(handle, None)
            if opened is not None:
                del self._handles[opened.fileno()]
                self._epoll.unregister(opened)  # a forked child may have a copy of it
                opened.close()

    def wait(self, seconds: float) -> list[WaitHandle]:
        """Wait for a time, or until there is something. Returns the calls that were woken."""
        events = self._epoll.poll(max(0.0, seconds))
        with self._lock:
            return [woken for fd, _ in events if (woken := self._take(fd)) is not None]

    def _take(self, fd: int) -> WaitHandle | None:
        """Empty what has something in it. Returns whose it is; None if it is nobody's by now."""
        handle = self._handles.get(fd)
        if fd == self._interrupt_fd:
            with suppress(BlockingIOError):
                os.eventfd_read(fd)
        elif handle is not None:
            brought = read_wake_ups(self._sockets[handle], handle.token)
            handle.found = brought or handle.found
        return handle

    def interrupt(self) -> None:
        """Make `wait` return."""
        with self._lock, suppress(OSError):  # it was closed meanwhile
            os.eventfd_write(self._interrupt_fd, 1)

    def close(self) -> None:
        """Close all sockets."""
        with self._lock:
            for opened in self._sockets.values():
                opened.close()
            self._sockets.clear()
            self._handles.clear()
            if not self._epoll.closed:
                self._epoll.close()
                os.close(self._interrupt_fd)


_inboxes: weakref.WeakSet[LinuxInbox] = weakref.WeakSet()
_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


@fork_hooks.in_child
def _in_child() -> None:
    """The parent's sockets are not the child's. A copy in the child would keep the name: the call
    would seem to wait for as long as the child lives, and its next wait could not be woken."""
    for opened in list(_sockets):
        opened.close()
    for inbox in list(_inboxes):
        inbox._lock = threading.Lock()
        inbox.close()


def open_inbox() -> Inbox:
    """Returns an inbox; one without sockets where they cannot be had."""
    if sys.platform == "linux" and hasattr(select, "epoll"):  # gevent takes it away
        with suppress(OSError):
            return LinuxInbox()
    return Inbox()
