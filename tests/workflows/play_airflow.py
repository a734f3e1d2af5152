"""Runs in an environment with Airflow: the page's DAG with a free lock, and with a taken one."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import holdfast


def fences() -> list[int]:
    """The fences of the reports so far."""
    diary = Path("diary")
    lines = diary.read_text().splitlines() if diary.exists() else []
    return [int(line.split()[1]) for line in lines]


def states(run: Any) -> list[tuple[str, str, int]]:
    """What became of the tasks of a run."""
    return [(one.task_id, str(one.state), one.try_number) for one in run.get_task_instances()]


def main() -> None:
    """Run the DAG twice, and the function that skips."""
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, timeout=300)
    import others
    import page
    from airflow.sdk.exceptions import AirflowSkipException
    from reporting import make_report

    locks = holdfast.connect()
    first = states(page.dag.test())
    assert first == [("build", "success", 1)], first
    assert len(fences()) == 1

    lease = locks.acquire("report:2026-11")
    threading.Timer(8, lease.release).start()
    second = states(page.dag.test())
    assert [(task, state) for task, state, _ in second] == [("build", "success")], second
    assert second[0][2] > 1, "it was not retried"
    assert len(fences()) == 2
    assert fences()[1] > lease.fence

    vars(others).update(locks=locks, make_report=make_report)
    assert others.build_or_skip("2026-11") == "2026-11"
    with locks.acquire("report:2026-11"):
        try:
            others.build_or_skip("2026-11")
        except AirflowSkipException:
            return
    raise AssertionError("it was not skipped")


if __name__ == "__main__":
    main()
