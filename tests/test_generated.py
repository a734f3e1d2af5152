"""The blocking twins of async modules are what tools/async_to_sync.py would write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOOL = ROOT / "tools" / "async_to_sync.py"


def test_twins_are_up_to_date() -> None:
    """Whoever changes one side of a twin is told to run `make generate`."""
    ran = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_what_the_tool_makes_of_a_module() -> None:
    """Words go, names change, and of each choice by `ASYNC` the blocking branch is left."""
    source = ROOT / "tests" / "twins" / "sample_async.py"
    expected = source.with_name("sample.py").read_text()
    program = (
        f"import sys; sys.path.insert(0, {str(TOOL.parent)!r}); import async_to_sync, pathlib; "
        f"print(async_to_sync.translate(pathlib.Path({str(source)!r}).read_text(), "
        f"{source.name!r}), end='')"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == (expected, "")
