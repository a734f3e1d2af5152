"""`python -m examples.orchestrator [URL]`: the story, told by real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


def start(name: str) -> subprocess.Popen[bytes]:
    """An orchestrator as a process of its own."""
    module = "examples.orchestrator.orchestrator"
    return subprocess.Popen([sys.executable, "-m", module, name], cwd=ROOT)


def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    ends_at = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > ends_at:
            sys.exit("This takes too long.")
        time.sleep(0.05)


def tell(text: str) -> None:
    """A line of the story."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(url: str | None) -> int:
    """Everything in a folder that is gone afterwards, but for the locks of a given URL."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RESULTS"] = folder
        os.environ["HOLDFAST_URL"] = url or f"file://{folder}/locks"
        from examples.orchestrator import results
        from examples.orchestrator.parts import PARTS, TTL_S

        tell("An orchestrator starts two remotes.")
        first = start("first")
        until(lambda: len(results.journal()) >= len(PARTS) or first.poll() is not None)
        if first.poll() is not None:
            sys.exit("The orchestrator ended before its remotes were at work.")
        tell(f"Both are at work. kill -9 {first.pid}: the orchestrator dies.")
        first.send_signal(signal.SIGKILL)
        first.wait()
        time.sleep(TTL_S * 1.2)
        tell(f"A ttl of {TTL_S:g} s later the remotes have kept their locks. A second one starts.")
        code = start("second").wait(PATIENCE_S)
        once = sorted(results.journal()) == sorted(
            f"{what} {part}" for what in ("began", "computed") for part in PARTS
        )
        tell("Each part was computed once." if once else f"Not once: {results.journal()}")
        return code or (0 if once else 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("HOLDFAST_URL")))
