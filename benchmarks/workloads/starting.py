"""What `holdfast run KEY -- true` costs: a new process for every job."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import Contestant
from benchmarks.peers.base import Entrant
from benchmarks.peers.ours import Holdfast
from benchmarks.sites import Place

STORES = ("sqlite", "redis", "postgresql")


class Starting(Workload):
    """In turns with `python -c pass`, the least that a program in Python can cost."""

    name = "start"
    title = "`holdfast run k -- true`"
    about = (
        "The processor time of a new process that connects, takes a lock, runs a command and ends; "
        "most of it goes into imports. The second figure is how many times as much as "
        "`python -c pass` it takes, measured in turns with it."
    )
    quick = False
    columns = (
        Column("start_ms", "ms of CPU", digits=0),
        Column("times_python", "× `python -c pass`", digits=1),
    )
    processes = True

    def fits(self, place: Place) -> bool:
        return place.store in STORES

    def takes(self, contestant: type[Contestant]) -> bool:
        return contestant is Holdfast

    def rounds(self, scale: Scale, size: int) -> int:
        return scale.starts

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        compiled = {"PYTHONPYCACHEPREFIX": _compiled().name}
        env = {**os.environ, "HOLDFAST_URL": entrant.place.url, **compiled}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        turn = partial(_start, env)
        turn()  # compiles what an installed package has compiled already
        yield turn


@cache
def _compiled() -> tempfile.TemporaryDirectory[str]:
    """A folder for what is compiled, once for all stores."""
    return tempfile.TemporaryDirectory(prefix="holdfast-bench-")


def _start(env: Mapping[str, str]) -> Figures:
    least = _cpu([sys.executable, "-c", "pass"], env)
    ours = _cpu([_script(), "run", "k", "--", "true"], env)
    return {"start_ms": ours * 1e3, "times_python": ours / least}


def _script() -> str:
    """What cron runs; `python -m holdfast` takes a little longer."""
    return str(Path(sys.executable).with_name("holdfast"))


def _cpu(command: Sequence[str], env: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
