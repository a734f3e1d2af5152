"""How long a program waits for `import holdfast`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import Contestant
from benchmarks.peers.base import Entrant
from benchmarks.peers.ours import Holdfast
from benchmarks.sites import Place

CODE = "import time; t = time.perf_counter(); import holdfast; print(time.perf_counter() - t)"


class Importing(Workload):
    """In a new interpreter each time. It has nothing to do with the store."""

    name = "import"
    title = "`import holdfast`"
    about = "In a new interpreter each time."
    columns = (Column("import_ms", "ms", digits=0),)

    def fits(self, place: Place) -> bool:
        return place.store == "memory"

    def takes(self, contestant: type[Contestant]) -> bool:
        return contestant is Holdfast

    def rounds(self, scale: Scale, size: int) -> int:
        return scale.rounds

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        yield _import


def _import() -> Figures:
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True)
    return {"import_ms": float(run.stdout) * 1e3}
