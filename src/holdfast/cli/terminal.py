"""The controlling terminal, and which process group is in its foreground.

A command in a group of its own is in the background of the terminal: it cannot read from it, and
Ctrl-C does not reach it. So its group is put into the foreground while it runs, as a shell does
it: the command itself does that before its first instruction. If we did it a moment later, the
command could be stopped for reading too soon, and a Ctrl-Z of that moment would be forgotten when
it is resumed. In a pipeline (`holdfast run … | less`) other programs need the terminal too. There
the command gets it only when the system stopped it for trying to use it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

# The signals that stop a process in the background when it uses the terminal.
ACCESS_STOPS = (signal.SIGTTIN, signal.SIGTTOU)
JOB_STOPS = (signal.SIGTSTP, *ACCESS_STOPS)


class Terminal:
    """The controlling terminal of this process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.given_away = False  # whether the command is in the foreground

    @classmethod
    def open(cls) -> Terminal | None:
        """Returns the controlling terminal; None if there is none."""
        try:
            return cls(os.open("/dev/tty", os.O_RDWR))
        except OSError:
            return None

    def close(self) -> None:
        """Put our group into the foreground again, and close the terminal."""
        self.take_back()
        os.close(self._fd)

    def gift(self) -> Callable[[], None] | None:
        """Returns what a command calls between fork and exec, in a group of its own, to be in the
        foreground; None if it is not to be there."""
        ours = os.getpgrp()
        if _is_piped() or self._foreground_group() != ours:
            return None
        self.given_away = True

        def come_to_front() -> None:
            for signum in (signal.SIGINT, signal.SIGQUIT):  # they reach it from now on
                if callable(signal.getsignal(signum)):
                    signal.signal(signum, signal.SIG_DFL)
            if self._foreground_group() == ours:
                self._set_foreground_group(os.getpgrp())

        return come_to_front

    def give_foreground_unless_piped(self, group: int) -> None:
        """Put a group into the foreground, unless this process is part of a pipeline."""
        if not _is_piped():
            self.give_foreground(group)

    def give_foreground(self, group: int) -> bool:
        """Put a group into the foreground if ours is there. Returns whether it is there now."""
        front = self._foreground_group()
        if front == os.getpgrp() and self._set_foreground_group(group):
            self.given_away = True
            return True
        return front == group

    def take_back(self) -> None:
        """Put our group into the foreground again."""
        if self.given_away:
            self.given_away = False
            self._set_foreground_group(os.getpgrp())

    def _foreground_group(self) -> int | None:
        try:
            return os.tcgetpgrp(self._fd)
        except OSError:
            return None

    def _set_foreground_group(self, group: int) -> bool:
        # From the background this raises SIGTTOU, which would stop us. We block the signal and do
        # not ignore it, because a command that is started meanwhile would inherit the latter.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            os.tcsetpgrp(self._fd, group)
            return True
        except OSError:
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_our_group(signum: int) -> None:
    """Stop our whole group, as the terminal would have done. Returns when the group goes on.

    In an orphaned group, which no shell controls, the kernel ignores these signals.
    """
    before = signal.signal(signum, signal.SIG_DFL)
    with suppress(OSError):
        os.killpg(os.getpgrp(), signum)
    signal.signal(signum, before)


def _is_piped() -> bool:
    """Whether this process is part of a pipeline."""
    return not (is_terminal(sys.stdin) and is_terminal(sys.stdout))


def is_terminal(stream: object) -> bool:
    """Whether a standard stream, which may be closed, is a terminal."""
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False
