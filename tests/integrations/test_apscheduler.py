"""The page about APScheduler: its schedulers run, one at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import until
from tests.pages import code

PAGE = "frameworks/apscheduler.md"
LEADING, LEADING_ASYNC = code(PAGE, "A scheduler on every machine, one active")
GUARDED, ONCE = code(PAGE, "A job that must not overlap")

REPORTS = """
import os

def report():
    with open("diary", "a") as diary:
        diary.write(f"{os.getpid()}\\n")

async def report_async():
    report()
"""


@pytest.mark.parametrize("program", [LEADING, LEADING_ASYNC], ids=["threads", "asyncio"])
def test_one_scheduler_is_active(program: str, tmp_path: Path) -> None:
    """Of two processes one runs the job; when it is told to stop, the other one does."""
    assert "minutes=5" in program
    (tmp_path / "reports.py").write_text(REPORTS)
    (tmp_path / "schedule.py").write_text(program.replace("minutes=5", "seconds=0.05"))
    diary = tmp_path / "diary"
    diary.touch()

    def ran() -> set[int]:
        return {int(line) for line in diary.read_text().split()}

    environment = {**os.environ, "HOLDFAST_URL": f"sqlite://{tmp_path}/locks.db"}
    command = [sys.executable, "-W", "ignore", "schedule.py"]
    both = [subprocess.Popen(command, cwd=tmp_path, env=environment) for _ in "ab"]
    try:
        until(ran, 60)
        first = next(one for one in both if one.pid in ran())
        until(lambda: len(diary.read_text().split()) >= 5, 60)
        assert ran() == {first.pid}
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 0
        until(lambda: len(ran()) == 2, 60)
        lines = [int(line) for line in diary.read_text().split()]
        assert lines == sorted(lines, key=lambda pid: pid != first.pid)
    finally:
        for one in both:
            one.kill()
            one.wait(10)


def test_guarded_jobs_work_as_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is skipped while another one runs, and one that has one result per hour."""
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite://{tmp_path}/locks.db")
    written: list[int] = []
    made: list[str] = []
    names: dict[str, Any] = {"write_report": lambda fence: written.append(fence)}

    def make_report(hour: str) -> str:
        made.append(hour)
        return hour

    names["make_report"] = make_report
    exec(GUARDED, names)
    with names["locks"] as locks:
        names["report"]()
        with locks.acquire("report"):
            assert names["report"]() is None
        assert len(written) == 1
        exec(ONCE.replace("/shared/reports", f"{tmp_path}/results"), names)
        (tmp_path / "results").mkdir()
        hours = {names["report_of"]("1999-12-31T23") for _ in range(3)}
        assert (hours, made) == ({"1999-12-31T23"}, ["1999-12-31T23"])
        names["report_of_this_hour"]()
        assert len(made) == 2
