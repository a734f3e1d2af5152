"""The terminal, and whose turn it is at it.

A command in a group of its own is in the background as the terminal sees it: it could not
read, and Ctrl-C would pass it by. So its group is put into the foreground while it runs,
as a shell would do. In a pipeline (`holdfast run … | less`) the others need the terminal
too: then the command gets it only when it asks, that is, when it was stopped for it.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

# What stops a process for the terminal's sake.
ASKS = (signal.SIGTTIN, signal.SIGTTOU)
JOB_STOPS = (signal.SIGTSTP, *ASKS)


class Terminal:
    """The terminal that controls this process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lent_to: int | None = None

    @classmethod
    def open(cls) -> Terminal | None:
        """The controlling terminal; None: there is none."""
        try:
            return cls(os.open("/dev/tty", os.O_RDWR))
        except OSError:
            return None

    def close(self) -> None:
        """Take the terminal back, and let go of it."""
        self.take_back()
        os.close(self._fd)

    @property
    def lent(self) -> bool:
        """Whether the command has it."""
        return self._lent_to is not None

    def lend_unless_piped(self, group: int) -> None:
        """Give it to a command unasked, unless we are a part of a pipeline."""
        if is_terminal(sys.stdin) and is_terminal(sys.stdout):
            self.lend(group)

    def lend(self, group: int) -> bool:
        """Give it to a group if it is ours to give. True: the group has it now."""
        front = self._front()
        if front == os.getpgrp() and self._put_in_front(group):
            self._lent_to = front = group
        return front == group

    def take_back(self) -> None:
        """Have it again."""
        if self._lent_to is not None:
            self._lent_to = None
            self._put_in_front(os.getpgrp())

    def _front(self) -> int | None:
        try:
            return os.tcgetpgrp(self._fd)
        except OSError:
            return None

    def _put_in_front(self, group: int) -> bool:
        # From the background this raises SIGTTOU, which would stop us. It is blocked and
        # not ignored, because a command that is started now would inherit the latter.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            os.tcsetpgrp(self._fd, group)
            return True
        except OSError:
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_with(signum: int) -> None:
    """Stop our whole group, as the terminal would have; returns when it goes on.

    In a group that no shell looks after, the kernel does not stop anybody for these.
    """
    before = signal.signal(signum, signal.SIG_DFL)
    with suppress(OSError):
        os.killpg(os.getpgrp(), signum)
    signal.signal(signum, before)


def is_terminal(stream: object) -> bool:
    """Whether a standard stream is one. It may be closed."""
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False
