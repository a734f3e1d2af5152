"""Signals: they end a wait for the lock, and later `run` passes them on to its command.

Handlers run in the main thread, between two bytecodes. During the wait the first signal raises
`Interrupted` there, and the claim is undone. From just before the command starts, handlers only
collect signals, so that none is lost and none interrupts the start half way. A signal that was
ignored when this process started stays ignored (`nohup`).

`wait` and `watch` end in the same way: without it they would leave a terminal without its cursor.
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
# These matter only once there is a command.
CHANGING = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


class Interrupted(BaseException):
    """A signal ended the wait."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Defer signals until the end of the block, which must run whole or not at all. Use it in the
    main thread; a thread that is started inside the block never receives signals."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class SignalQueue:
    """Collects signals; the main thread waits on it until something happens."""

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._raises = True
        self._before: dict[int, Any] = {}
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def __enter__(self) -> SignalQueue:
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

    def interrupt(self) -> None:
        """From now on a signal raises `Interrupted`, as at the beginning; at once if one came."""
        self._raises = True
        for signum in self.take():
            if signum in ENDING:
                self._received(signum, None)

    def collect(self) -> None:
        """From now on collect signals for `take` instead of raising."""
        self._raises = False
        for signum in CHANGING:
            self._install(signum, self._received)

    def wait(self, seconds: float) -> None:
        """Wait for a signal or a `wake`, for at most this long."""
        if select.select([self._reader], [], [], max(0.0, seconds))[0]:
            with suppress(BlockingIOError):
                while self._reader.recv(4096):
                    pass

    def wake(self) -> None:
        """Make `wait` return. Safe to call from any thread."""
        with suppress(OSError):
            self._writer.send(b"\0")

    def take(self) -> list[int]:
        """Returns the signals since the last call, in their order."""
        taken, self._signals = self._signals, []
        return taken

    def _install(self, signum: int, handler: Any) -> None:
        self._before.setdefault(signum, signal.signal(signum, handler))

    def _received(self, signum: int, frame: FrameType | None) -> None:
        if self._raises:
            self._raises = False  # the next signal must not interrupt the cleaning up
            raise Interrupted(signum)
        self._signals.append(signum)

    def _woken(self, signum: int, frame: FrameType | None) -> None:
        """A child changed its state. The wake-up descriptor has made `wait` return already."""
