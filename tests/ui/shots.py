"""Takes the screenshots of the docs: python -m tests.ui.shots docs/ui

A store with a plausible day in it, and a history of the last quarter of an hour.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import holdfast
from holdfast.ui.history import History
from tests.engines.chromium import Chromium
from tests.ui.served import served

OWNERS = ["etl-01:2211", "etl-02:941", "web-3:77", "worker-9:4410", "billing:12", "api-1:8"]
HELD = {
    "pipeline:orders": ("etl-01:2211", {"run": "2026-11-17T06:00", "step": "load"}),
    "pipeline:customers": ("etl-02:941", {"run": "2026-11-17T06:00"}),
    "db://warehouse/schema": ("migrate:3302", {"change": "OPS-4411"}),
    "report:monthly": ("billing:12", {}),
    "cache:rebuild": ("web-3:77", {}),
    "deploy:production": ("ci-runner-4:1009", {"commit": "b8122b8"}),
}
WAIT = [
    ("pipeline:orders", "etl-02:941"), ("pipeline:orders", "worker-9:4410"),
    ("pipeline:customers", "etl-01:2211"), ("db://warehouse/schema", "web-3:77"),
    ("db://warehouse/schema", "api-1:8"), ("report:monthly", "api-1:8"),
]  # fmt: skip


def remember(file: Path) -> None:
    """Write the last quarter of an hour as the page would have seen it."""
    draw, history, now = random.Random(7), History(file), time.time()
    begin = now - 880
    holders: dict[str, list[tuple[float, float, str]]] = {key: [] for key in HELD}
    for turns in holders.values():
        at = begin + draw.uniform(0, 40)
        while at < now - 30:
            ends = at + draw.uniform(20, 160)
            turns.append((at, ends, draw.choice(OWNERS)))
            at = ends + draw.choice([0.0, 0.0, draw.uniform(3, 30)])
    for step in range(0, 870, 2):
        at = begin + step
        if 300 < step < 372:
            history.failed("the store could not be read: it was restarted")
            continue
        history.saw([_lock(key, turns, at) for key, turns in holders.items()], at)
    history.close()


def _lock(key: str, turns: list[tuple[float, float, str]], at: float) -> Any:
    here = [turn for turn in turns if turn[0] <= at < turn[1]]
    after = [turn for turn in turns if 0 < turn[0] - at < (turn[0] * 7919) % 60]
    past = [turn for turn in turns if turn[0] <= at]
    fence = int(past[-1][0] * 1e6) if past else 1
    if key == "cache:rebuild":
        fence = max(fence, int(at // 200) * 200_000_000)
    return {
        "key": key, "fence": fence, "fault": None,
        "history": [{"what": "evicted", "fence": int(turn[0] * 1e6), "at": turn[1], "by": "ann@ops",
                     "reason": "it hung"} for turn in past[2:3] if turn[1] <= at],
        "holders": [{"owner": who, "mode": "exclusive", "fence": int(began * 1e6), "since": began}
                    for began, _, who in here],
        "waiters": [{"owner": who, "mode": "exclusive", "since": began - (began * 7919) % 60}
                    for began, _, who in after if here],
    }  # fmt: skip


def fill(locks: holdfast.Locks) -> list[Any]:
    """Hold and wait."""
    held = [locks.acquire(key, owner=who, note=note) for key, (who, note) in HELD.items()]
    for number in range(4):
        held.append(locks.acquire("gpu:a100", owner=f"train-{number}:88{number}", limit=8))
    for number in range(240):
        who = OWNERS[number % len(OWNERS)]
        held.append(locks.acquire(f"tenant:{number:04}", owner=who))
    for key, owner in WAIT:
        threading.Thread(target=_wait, args=(locks, key, owner), daemon=True).start()
        time.sleep(0.2)
    return held


def _wait(locks: holdfast.Locks, key: str, owner: str) -> None:
    with contextlib.suppress(holdfast.HoldfastError):  # until the client is closed
        locks.acquire(key, owner=owner, fair=True)


def main(out: Path) -> None:
    """Take them all."""
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Chromium() as chromium, sync_playwright() as play:
        url, history = f"sqlite:///{folder}/locks.db", Path(folder) / "history.db"
        remember(history)
        locks = holdfast.connect(url, ttl=30, pass_on=False)  # each of its threads is a party
        held = fill(locks)
        with served(url, "--history", str(history), "--allow-evict") as server:
            browser = play.chromium.connect_over_cdp(chromium.url)
            for scheme in ("light", "dark"):
                context = browser.new_context(
                    viewport={"width": 1280, "height": 760}, device_scale_factor=1,
                    color_scheme=scheme,
                )  # fmt: skip
                page = context.new_page()
                page.goto(server.with_token)
                page.wait_for_selector(".count")
                page.evaluate(
                    "document.getElementById('store').textContent = 'sqlite:///var/lib/app/locks.db'"
                )
                page.wait_for_timeout(2500)
                page.screenshot(path=out / f"locks-{scheme}.png")
                page.locator(".rows .row").filter(has_text="pipeline:orders").click()
                page.wait_for_timeout(500)
                page.screenshot(path=out / f"detail-{scheme}.png")
                page.keyboard.press("Escape")
                page.click("#tab-timeline")
                page.wait_for_timeout(2000)
                page.screenshot(path=out / f"timeline-{scheme}.png")
                page.click("#tab-waits")
                page.wait_for_timeout(500)
                page.screenshot(path=out / f"waits-{scheme}.png")
                context.close()
        assert held
        locks.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
