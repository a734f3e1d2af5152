"""For all tests."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

# The machine may be busy: how long an example takes says nothing about our code.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")

# A shell that runs the tests in the background has them ignore Ctrl-C, and `nohup` a hang-up; so
# would the programs that the tests start, and send these signals to.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_IGN:
        usual = signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL
        signal.signal(_number, usual)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have to say at the end, by `record_property("summary", ...)`: the simulator,
    which seeds it has run."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                said = dict(report.user_properties).get("summary")
                if said is not None:
                    terminalreporter.write_line(str(said))
