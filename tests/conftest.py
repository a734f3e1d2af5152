"""For all tests."""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.desk import Desk

# The machine may be busy: how long an example takes says nothing about our code.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")

# A shell that runs the tests in the background has them ignore Ctrl-C, and `nohup` a hang-up; so
# would the programs that the tests start, and send these signals to.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_IGN:
        usual = signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL
        signal.signal(_number, usual)

# How long a test that has failed may clean up behind itself.
CLEANING_S = 60.0


@pytest.hookimpl(trylast=True)
def pytest_exception_interact() -> None:
    """Bound the cleaning up behind a failure, too: pytest calls off `faulthandler_timeout` here,
    for debuggers, and pytest-timeout has rung already if it was a timeout that failed."""
    faulthandler.dump_traceback_later(CLEANING_S, exit=True, file=2)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have to say at the end, by `record_property("summary", ...)`: the simulator,
    which seeds it has run."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                said = dict(report.user_properties).get("summary")
                if said is not None:
                    terminalreporter.write_line(str(said))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """Where the code of the docs runs."""
    from tests.desk import desk_in  # it needs the drivers of several stores

    with desk_in(tmp_path, monkeypatch) as desk:
        yield desk
