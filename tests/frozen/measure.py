"""Runs the caller on a store that freezes, and reads what it measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tests.frozen.sites import Site

ROOT = Path(__file__).parents[2]
FACES = ("sync", "async")
LONGEST_S = 300


class Measured(Struct, frozen=True):
    """One call: how long it took, what was promised, and what came of it."""

    call: str
    seconds: float
    promised: float
    outcome: str

    @property
    def late_s(self) -> float:
        """By how much it was later than promised."""
        return self.seconds - self.promised


def measure(site: Site, face: str, request_timeout: float) -> list[Measured]:
    """Have the caller use the store, freeze it, and return what the caller measured."""
    url, freeze, thaw = site
    command = [sys.executable, "-m", "tests.frozen.caller", url, face, str(request_timeout)]
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "PYTHONWARNINGS": "default",
    }
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as caller:
        assert caller.stdout is not None
        assert caller.stdin is not None
        try:
            assert caller.stdout.readline() == "ready\n"
            freeze()
            try:
                caller.stdin.write("frozen\n")
                caller.stdin.flush()
                rows = [Measured(*json.loads(line)) for line in caller.stdout]
                caller.wait(LONGEST_S)
                ended = time.monotonic()
            finally:
                thaw()
        finally:
            caller.kill()
    *calls, last, own = rows
    assert (last.call, own.call) == ("exit", "Python's own end"), rows
    return [*calls, *(replace(one, seconds=ended - one.seconds) for one in (last, own))]
