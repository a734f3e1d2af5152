"""What sinks cost: the processor time of an uncontended pair, in turns, the best of many.

python -m tests.observe.cost [--beside FOLDER …]    FOLDER: other checkouts, for "before"
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

# Short turns, so that some are not disturbed by others on the machine; long enough that Prometheus
# counts twice in each.
TURNS, PAIRS = 200, 128


def ignore(event: object) -> None:
    """Do nothing."""


def pair(locks: Any) -> float:
    """Microseconds of processor time for one acquire and release."""
    began = time.process_time()
    for _ in range(PAIRS):
        locks.acquire("k").release()
    return (time.process_time() - began) / PAIRS * 1e6


def measure(clients: dict[str, Callable[[], float]], turns: int = TURNS) -> dict[str, float]:
    """The best of each, in turns."""
    best = dict.fromkeys(clients, float("inf"))
    for _ in range(turns):
        for name, run in clients.items():
            best[name] = min(best[name], run())
    return {name: round(value, 1) for name, value in best.items()}


def sinks() -> dict[str, float]:
    """No sink, a function, and Prometheus, on memory."""
    import holdfast
    from holdfast.observe.prometheus import PrometheusSink

    metrics = PrometheusSink(["k"], registry=None)
    clients = {
        "no sink": holdfast.connect("memory://a"),
        "on_event": holdfast.connect("memory://b", on_event=ignore),
        "Prometheus": holdfast.connect("memory://c", sinks=[metrics]),
    }
    return measure({name: lambda one=one: pair(one) for name, one in clients.items()})  # type: ignore[misc]


def without_sinks(folder: str) -> float:
    """One short run with the code of a folder, in a process of its own."""
    code = (
        "import time, holdfast, json\n"
        "locks = holdfast.connect('memory://')\n"
        f"best = 1e9\nfor _ in range({TURNS}):\n"
        "    began = time.process_time()\n"
        f"    for _ in range({PAIRS}): locks.acquire('k').release()\n"
        f"    best = min(best, (time.process_time() - began) / {PAIRS} * 1e6)\n"
        "print(json.dumps(best))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.path.join(folder, "src")}  # noqa: PTH118
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return float(json.loads(ran.stdout))


def main() -> None:
    """Print what it costs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--beside", nargs="*", default=[])
    asked = parser.parse_args()
    sys.stdout.write(f"{sinks()}\n")
    if asked.beside:
        folders = [*asked.beside, "."]
        runs = {one: lambda one=one: without_sinks(one) for one in folders}
        sys.stdout.write(f"{measure(runs, 6)}\n")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
