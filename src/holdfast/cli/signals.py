"""Signals for `run`: they end a wait for the lock, and later are passed on to the command.

Handlers run in the main thread between two bytecodes. While the lock is waited for, one
raises `Interrupted` there, once, and the claim cleans up behind itself. From the moment
before the command starts they only collect, so that none is lost and none can cut the
start in two. A signal that was ignored when we were started stays so (`nohup`).

`wait` and `watch` end in the same way: killed on the spot they would leave a terminal without
its cursor.
"""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

ENDING = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
# These mean something to us only once there is a command.
CHANGING = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


class Interrupted(BaseException):
    """A signal ended the wait."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


@contextmanager
def held_back() -> Iterator[None]:
    """A signal that comes meanwhile is received afterwards: for what must be whole or not at all.
    For the main thread; a thread that is started meanwhile receives none."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Inbox:
    """Where signals arrive, and where the main thread sleeps until something happens."""

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._raises = True
        self._before: dict[int, Any] = {}
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def __enter__(self) -> Inbox:
        self._wakeup_before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._install(signal.SIGCHLD, self._woken)
        for signum in ENDING:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._install(signum, self._received)
        return self

    def __exit__(self, *exc: object) -> None:
        self._raises = False
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._reader.close()
        self._writer.close()

    def collect(self) -> None:
        """From here on signals are collected for `take`."""
        self._raises = False
        for signum in CHANGING:
            self._install(signum, self._received)

    def wait(self, seconds: float) -> None:
        """Sleep until a signal or a `wake`, or for this long."""
        if select.select([self._reader], [], [], max(0.0, seconds))[0]:
            with suppress(BlockingIOError):
                while self._reader.recv(4096):
                    pass

    def wake(self) -> None:
        """Let the main thread look around. From any thread."""
        with suppress(OSError):
            self._writer.send(b"\0")

    def take(self) -> list[int]:
        """The signals since the last time, in their order."""
        taken, self._signals = self._signals, []
        return taken

    def _install(self, signum: int, handler: Any) -> None:
        self._before.setdefault(signum, signal.signal(signum, handler))

    def _received(self, signum: int, frame: FrameType | None) -> None:
        if self._raises:
            self._raises = False  # the next one must not disturb the cleaning up
            raise Interrupted(signum)
        self._signals.append(signum)

    def _woken(self, signum: int, frame: FrameType | None) -> None:
        """A child changed: the wake-up through the socket is all that is needed."""
