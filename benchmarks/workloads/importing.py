"""How long a program waits for `import holdfast`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

import holdfast
from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import Contestant
from benchmarks.peers.base import Entrant
from benchmarks.peers.ours import Holdfast
from benchmarks.sites import Place

CODE = """
import sys, time
sys.path.insert(0, sys.argv[1])
before = time.perf_counter()
import holdfast
imported = time.perf_counter()
holdfast.connect("memory://").acquire("k").release()
print(imported - before, time.perf_counter() - before)
"""


class Importing(Workload):
    """In a new interpreter each time. It has nothing to do with the store."""

    name = "import"
    title = "`import holdfast`"
    about = (
        "In a new interpreter each time, which sees nothing but Holdfast and msgspec, which it "
        "needs. (msgspec imports typing_extensions if it is installed, and then takes longer.) The "
        "first use of a lock imports the rest: the second figure is the time from the start of the "
        "import to the end of a first lock in memory."
    )
    columns = (
        Column("import_ms", "ms", digits=0),
        Column("first_ms", "ms to a first lock", digits=0),
    )

    def fits(self, place: Place) -> bool:
        return place.store == "memory"

    def takes(self, contestant: type[Contestant]) -> bool:
        return contestant is Holdfast

    def rounds(self, scale: Scale, size: int) -> int:
        return scale.starts

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        with TemporaryDirectory() as folder:
            for module in (holdfast, msgspec):
                home = Path(str(module.__file__)).parent
                Path(folder, home.name).symlink_to(home)
            yield partial(_import, folder)


def _import(folder: str) -> Figures:
    command = [sys.executable, "-I", "-S", "-c", CODE, folder]
    run = subprocess.run(command, capture_output=True, check=True)
    import_s, first_s = map(float, run.stdout.split())
    return {"import_ms": import_s * 1e3, "first_ms": first_s * 1e3}
