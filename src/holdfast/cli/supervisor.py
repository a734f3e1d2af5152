"""While the command runs: pass on signals, check the lease, stop the command if it is lost.

1. One loop in the main thread waits until a signal comes, the command changes its state, the
   lease is lost or its deadline passes. It looks at least once a second, so that it notices when
   the machine was asleep.
2. The lease is checked first. After a pause (`kill -STOP`, Ctrl-Z) no signal is passed on, and the
   command is not resumed, before that.
3. If the lease is lost, the whole group gets SIGTERM, then SIGCONT (a stopped process would not
   handle SIGTERM), and SIGKILL after the grace time. All processes of the group must be gone, not
   only its leader.
4. If the command is stopped from the terminal, this process stops too, so that the shell goes on.
   If it is stopped in another way, this process waits and keeps the lease.
"""

from __future__ import annotations

import signal
import time

from holdfast.api.leases import Lease
from holdfast.cli.child import Child
from holdfast.cli.session import tell
from holdfast.cli.signals import SignalQueue
from holdfast.cli.terminal import ACCESS_STOPS, JOB_STOPS, Terminal, stop_our_group

LOOK_S = 1.0
LOOK_WHILE_STOPPING_S = 0.02
# A process that survives SIGKILL for so long hangs in the kernel.
AFTER_KILL_S = 2.0


class Supervisor:
    """Runs one command under one lease."""

    def __init__(
        self,
        child: Child,
        lease: Lease,
        signal_queue: SignalQueue,
        terminal: Terminal | None,
        grace_s: float,
    ) -> None:
        self._child = child
        self._lease = lease
        self._signal_queue = signal_queue
        self._terminal = terminal
        self._grace_s = grace_s
        self._asked_to_stop = False  # Ctrl-Z, and the command has not stopped for it yet

    def run(self) -> bool:
        """Run until the command has ended. Returns True if it was stopped for a lost lease."""
        self._lease.on_lost(lambda _: self._signal_queue.wake())
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
                self._signal_queue.wait(min(LOOK_S, self._lease.remaining()))
        return False

    def stop(self) -> None:
        """Stop the whole group: SIGTERM, then SIGKILL after the grace time."""
        child = self._child
        child.signal(signal.SIGTERM)
        child.signal(signal.SIGCONT)
        if not self._all_gone_within(self._grace_s):
            tell(f"the command did not stop within {self._grace_s:g} s: killing it")
            child.signal(signal.SIGKILL)
            if not self._all_gone_within(AFTER_KILL_S):
                tell(f"process group {child.pid} was killed, and is still there")

    def _tell_lost(self) -> None:
        key = self._lease.key
        why = self._lease.hold.why
        why = why or "it could not be renewed in time"
        tell(f"lost the lease on {key!r}: {why}. Stopping the command.")

    def _pass_on(self) -> None:
        for signum in self._signal_queue.take():
            if signum == signal.SIGCONT:
                self._resume()
            else:
                self._asked_to_stop |= signum == signal.SIGTSTP
                self._child.signal(signum)

    def _stopped(self, signum: int) -> None:
        terminal = self._terminal
        if terminal is None or signum not in JOB_STOPS:
            return
        if self._asked_to_stop:
            # The command stopped for its own reason first; SIGCONT would make it forget the other.
            signum = signal.SIGTSTP
        if signum in ACCESS_STOPS and terminal.give_foreground(self._child.pid):
            self._child.signal(signal.SIGCONT)
            return
        terminal.take_back()
        stop_our_group(signum)
        if self._lease.held:  # otherwise the loop stops the command
            self._resume()

    def _resume(self) -> None:
        """This process goes on after a pause: resume the command too."""
        self._asked_to_stop = False
        if self._terminal is not None:
            self._terminal.give_foreground_unless_piped(self._child.pid)
        self._child.signal(signal.SIGCONT)

    def _all_gone_within(self, seconds: float) -> bool:
        ends_at = time.monotonic() + seconds
        while not self._child.gone():
            if time.monotonic() >= ends_at:
                return False
            self._signal_queue.wait(LOOK_WHILE_STOPPING_S)
            self._pass_on()
            self._child.poll()
        return True
