"""The orchestrator's example is run as its README says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.conformance.blob_targets import azure_url
from tests.engines.azurite import Azurite
from tests.engines.shared import shared

ROOT = Path(__file__).parents[2]


def tell_story(*args: str) -> str:
    """Run it; what it said."""
    environment = {n: v for n, v in os.environ.items() if not n.startswith("HOLDFAST_")}
    environment |= {"PAUSE_S": "1.2", "TTL_S": "4"}  # machines of tests are busy
    program = subprocess.Popen(
        [sys.executable, "-m", "examples.orchestrator", *args],
        cwd=ROOT, env=environment, start_new_session=True,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = program.communicate(timeout=100)
    finally:
        with suppress(ProcessLookupError):  # nobody is left of a program that ended well
            os.killpg(program.pid, signal.SIGKILL)
    assert program.returncode == 0, output
    return output


def check(output: str) -> None:
    """Two remotes by the first, none by the second, and each part once."""
    assert output.count("first: even: not computed yet. I start a remote.") == 1, output
    assert output.count("first: odd: not computed yet. I start a remote.") == 1, output
    assert "second: even: at work for" in output, output
    assert "second: odd: at work for" in output, output
    assert "second: the result is 2470." in output, output
    assert output.endswith("Each part was computed once.\n"), output


def test_on_this_machine() -> None:
    """One command, nothing to install: the locks are files in a directory."""
    check(tell_story())


def test_on_azure() -> None:
    """The same with another URL: the locks are objects in a container."""
    check(tell_story(azure_url(shared(Azurite))))
