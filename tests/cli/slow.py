"""`holdfast`, which looks after its command so late that Ctrl-Z comes first."""

from __future__ import annotations

import os
import signal

from holdfast.cli import main
from holdfast.cli.supervisor import Supervisor
from tests.cli.program import until

run_at_once = Supervisor.run


def run_late(self: Supervisor) -> bool:
    """Wait until the command has stopped, and Ctrl-Z has reached it or this process."""
    stopped = os.waitid(os.P_PID, self._child.pid, os.WSTOPPED | os.WNOWAIT)
    if stopped is not None and stopped.si_status != signal.SIGTSTP:
        until(lambda: signal.SIGTSTP in self._signal_queue._signals)
    return run_at_once(self)


if __name__ == "__main__":
    Supervisor.run = run_late  # type: ignore[method-assign]
    main()
