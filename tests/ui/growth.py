"""Whether the page or its server grow: python -m tests.ui.growth [SECONDS]

5,000 locks of an SQLite file, some hundred of which change hands every second, and one page that is
open all the time, on the timeline for half of it. Prints the memory of both, every tenth of the
time.
"""

from __future__ import annotations

import logging
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

import holdfast
from tests.engines.chromium import Chromium
from tests.ui.served import served

LOCKS, A_SECOND = 5000, 200


def change(url: str, stop: threading.Event) -> None:
    """Let locks change hands until it is enough."""
    draw = random.Random(1)
    with holdfast.connect(url, ttl=3600) as locks:
        held = {
            number: locks.acquire(f"tenant:{number:05}", owner=f"web-{number % 50}", keep=False)
            for number in range(LOCKS)
        }
        while not stop.wait(1 / A_SECOND):
            number, owner = draw.randrange(LOCKS), f"web-{draw.randrange(50)}"
            held[number].release()
            held[number] = locks.acquire(f"tenant:{number:05}", owner=owner, keep=False)


def of_page(page: Page) -> tuple[float, int]:
    """The megabytes of JavaScript's heap after a collection, and the nodes of the document."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    told: Any = session.send("Performance.getMetrics")["metrics"]
    session.detach()
    metrics = {one["name"]: one["value"] for one in told}
    return metrics["JSHeapUsedSize"] / 1e6, int(metrics["Nodes"])


def of_server(pid: int) -> float:
    """The megabytes that a process has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1e3


def main(seconds: float) -> None:
    """Print how it grows."""
    logging.disable()
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as folder, Chromium() as chromium, sync_playwright() as play:
        url = f"sqlite:///{folder}/locks.db"
        changing = threading.Thread(target=change, args=(url, stop))
        changing.start()
        try:
            with served(url, interval=None) as server:
                page = play.chromium.connect_over_cdp(chromium.url).new_page()
                page.goto(server.address)
                held = "document.getElementById('sum-held').textContent.replace(',', '')"
                page.wait_for_function(f"() => {held} >= {LOCKS - 1}", timeout=120_000)
                sys.stdout.write("| s | page MB | nodes | server MB |\n|---|---|---|---|\n")
                began = time.monotonic()
                for part in range(11):
                    if part == 5:
                        page.click("#tab-timeline")
                    page.wait_for_timeout(
                        max(0.0, began + part * seconds / 10 - time.monotonic()) * 1000
                    )
                    heap, nodes = of_page(page)
                    at = time.monotonic() - began
                    row = f"| {at:.0f} | {heap:.1f} | {nodes} | {of_server(server.pid):.0f} |\n"
                    sys.stdout.write(row)
                    sys.stdout.flush()
        finally:
            stop.set()
            changing.join(60)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
