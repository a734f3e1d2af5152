"""Runs the caller on a store that freezes, and reads what it measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from msgspec import Struct

from tests.frozen.sites import Site

ROOT = Path(__file__).parents[2]
FACES = ("sync", "async")
ENDED_S = 2.0
PYTHONS_END, PYTHONS_CPU = "Python's own end", "processor time of it"


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


class Program:
    """A process that uses a store. It is ready when the block begins, and is killed at its end."""

    def __init__(self, url: str, face: str, request_timeout: float, work: str = "calls") -> None:
        words = [url, face, str(request_timeout), work]
        environment = os.environ | {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "PYTHONWARNINGS": "default",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.frozen.caller", *words],
            cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> Self:
        assert self._line() == "ready\n"
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        with suppress(BrokenPipeError), self._process:
            pass

    def calls(self) -> list[Measured]:
        """Have it make its calls; how long they took."""
        self._say("frozen")
        rows = []
        while (line := self._line()) != "done\n":
            rows.append(Measured(*json.loads(line)))
        return rows

    def end(self) -> list[Measured]:
        """Have it end; how long that took, how long Python's own part of it, and how much processor
        time that part needed."""
        self._say("end")
        (began, _), (python, cpu) = json.loads(self._line()), json.loads(self._line())
        _, status, usage = os.wait4(self._process.pid, 0)
        ended = time.monotonic()
        self._process.returncode = os.waitstatus_to_exitcode(status)
        assert self._process.returncode == 0
        return [
            Measured("exit", ended - began, ENDED_S, "ended"),
            Measured(PYTHONS_END, ended - python, ENDED_S, "ended"),
            Measured(PYTHONS_CPU, usage.ru_utime + usage.ru_stime - cpu, ENDED_S, "ended"),
        ]

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def measure(site: Site, face: str, request_timeout: float) -> list[Measured]:
    """Have a program use the store, freeze it, and return what the program measured."""
    url, freeze, thaw = site
    with Program(url, face, request_timeout) as program:
        freeze()
        try:
            return [*program.calls(), *program.end()]
        finally:
            thaw()
