"""Runs an example as its README says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tell_story(example: str, *args: str, env: dict[str, str]) -> str:
    """One command starts everything, tells the story and ends; what it said."""
    program = subprocess.Popen(
        [sys.executable, "-m", f"examples.{example}", *args],
        cwd=ROOT, env=env, start_new_session=True,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = program.communicate(timeout=100)
    finally:
        with suppress(ProcessLookupError):  # nobody is left of a program that ended well
            os.killpg(program.pid, signal.SIGKILL)
    assert program.returncode == 0, output
    return output
