"""While the command runs: pass on signals, watch the lease, stop the command if it is lost.

1. One loop in the main thread sleeps until a signal comes, the command changes, the lease
   is lost or its deadline passes. It looks once a second at least, so that a machine that
   was asleep is noticed.
2. The lease comes first. After a pause (`kill -STOP`, Ctrl-Z) nothing is passed on and
   nobody is woken before the lease was looked at.
3. Lost: SIGTERM to the whole group, SIGCONT so that it is heard, and after the grace time
   SIGKILL. Whoever of the group is left counts, not only its leader.
4. When the terminal's user stops the command, we stop too, and the shell has its turn. A
   command stopped in any other way is waited for, and the lease is kept.
"""

from __future__ import annotations

import signal
import time

from holdfast.api.leases import Lease
from holdfast.cli.child import Child
from holdfast.cli.session import tell
from holdfast.cli.signals import Inbox
from holdfast.cli.terminal import ASKS, JOB_STOPS, Terminal, stop_with

LOOK_S = 1.0
LOOK_WHILE_STOPPING_S = 0.02
# A process that does not even go away for SIGKILL hangs in the kernel.
AFTER_KILL_S = 2.0


class Supervisor:
    """Stands between one lease and one command."""

    def __init__(
        self, child: Child, lease: Lease, inbox: Inbox, terminal: Terminal | None, grace_s: float
    ) -> None:
        self._child = child
        self._lease = lease
        self._inbox = inbox
        self._terminal = terminal
        self._grace_s = grace_s

    def run(self) -> bool:
        """Until the command has ended. True: it was stopped, because the lease was lost."""
        self._lease.on_lost(lambda _: self._inbox.wake())
        self._lend()
        while self._child.code is None:
            if not self._lease.held:
                self._tell_lost()
                self.stop()
                return True
            self._pass_on()
            stopped_by = self._child.poll()
            if stopped_by is not None:
                self._stopped(stopped_by)
            elif self._child.code is None:
                self._inbox.wait(min(LOOK_S, self._lease.remaining()))
        return False

    def stop(self) -> None:
        """Stop the whole group: ask, wait, then do it."""
        child = self._child
        child.signal(signal.SIGTERM)
        child.signal(signal.SIGCONT)
        if not self._all_gone_within(self._grace_s):
            tell(f"it did not stop within {self._grace_s:g} s: killing it")
            child.signal(signal.SIGKILL)
            if not self._all_gone_within(AFTER_KILL_S):
                tell(f"process group {child.pid} is still there, though it was killed")

    def _tell_lost(self) -> None:
        key = self._lease.key
        why = self._lease.hold.why
        why = why or "it could not be renewed in time"
        tell(f"lost the lease on {key!r}: {why}. Stopping the command.")

    def _pass_on(self) -> None:
        for signum in self._inbox.take():
            if signum == signal.SIGCONT:
                self._resume()
            else:
                self._child.signal(signum)

    def _stopped(self, signum: int) -> None:
        terminal = self._terminal
        if terminal is None or signum not in JOB_STOPS:
            return
        if signum in ASKS and terminal.lend(self._child.pid):
            self._child.signal(signal.SIGCONT)
            return
        terminal.take_back()
        stop_with(signum)
        if self._lease.held:  # the loop sees to it otherwise
            self._resume()

    def _resume(self) -> None:
        """We go on after a pause, and so shall the command."""
        self._lend()
        self._child.signal(signal.SIGCONT)

    def _lend(self) -> None:
        if self._terminal is not None:
            self._terminal.lend_unless_piped(self._child.pid)

    def _all_gone_within(self, seconds: float) -> bool:
        ends_at = time.monotonic() + seconds
        while not self._child.gone():
            if time.monotonic() >= ends_at:
                return False
            self._inbox.wait(LOOK_WHILE_STOPPING_S)
            self._pass_on()
            self._child.poll()
        return True
