"""Runs in an environment with Prefect: the page's flows with a free lock, and with a taken one."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import others
import page
from prefect.testing.utilities import prefect_test_harness

import holdfast

locks = holdfast.connect()
others.holdfast = holdfast


def reports() -> int:
    """How many reports have been made."""
    return len(Path("diary").read_text().splitlines()) if Path("diary").exists() else 0


with prefect_test_harness(server_startup_timeout=120):
    assert page.reports() == "2026-11"
    assert reports() == 1

    lease = locks.acquire("report:2026-11")
    threading.Timer(5, lease.release).start()
    assert page.reports() == "2026-11"
    assert reports() == 2
    assert not lease.held

    assert asyncio.run(others.all_reports()) == "reports"
    with locks.acquire("reports"):
        try:
            asyncio.run(others.all_reports())
        except holdfast.Busy:
            print("busy, as it should be")  # noqa: T201
        else:
            raise AssertionError("it was not refused")
