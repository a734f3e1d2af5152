"""A listing of very many locks."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path

import holdfast
from benchmarks.crew import crew, locks_of
from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import Contestant, Peer
from benchmarks.peers.base import Entrant
from benchmarks.sites import Place
from holdfast.core.effects import Swap
from holdfast.stores.registry import open_store

BATCH = 50
FILLERS_AT_ONCE = 16
WARM_UP = 1010  # two pages and a bit: what is made once, and what a page needs, is there
PARTS = {"dynamodb": 50, "az": 50, "file": 10}  # of the locks, where each takes a while


class Listing(Workload):
    """How soon the first row is there, and what the rows need in memory."""

    name = "listing"
    title = "Listing very many locks"
    about = (
        "`locks.list()` in a process of its own, over locks that are all held. The memory is how "
        "far the process grew at its peak, after it had listed two pages of them: hardly, however "
        "many there are, if a listing never holds more than a page."
    )
    quick = False
    columns = (
        Column("first_ms", "first row, ms"),
        Column("rows_per_s", "rows a second", "more", digits=0),
        Column("peak_kib", "memory, KiB", digits=0),
    )
    size_name = "locks"

    def takes(self, contestant: type[Contestant]) -> bool:
        return contestant.kind == "ours" and issubclass(contestant, Peer)

    def sizes(self, scale: Scale, store: str) -> tuple[int, ...]:
        return tuple(max(1, size // PARTS.get(store, 1)) for size in scale.listed)

    def rounds(self, scale: Scale, size: int) -> int:
        return scale.long_rounds

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        fill(entrant.place, f"listed/{size}/", size)

        def turn() -> Figures:
            with crew(entrant, 1) as [worker]:
                figures: Figures = worker.call(list_all, size)
                return figures

        if entrant.place.processes:
            yield turn
        else:
            with entrant.peer() as peer:
                yield lambda: list_all(peer, size)


def list_all(peer: Peer, size: int) -> Figures:
    """In a process: list them all, and count."""
    locks = locks_of(peer)
    for _ in islice(locks.list(f"listed/{size}/"), WARM_UP):
        pass
    before = _peak_kib(fresh=True)
    started = time.perf_counter()
    rows = locks.list(f"listed/{size}/")
    next(rows)
    first = time.perf_counter()
    found = 1 + sum(1 for _ in rows)
    ended = time.perf_counter()
    assert found == size, f"{found} of {size} locks were listed"
    return {
        "first_ms": (first - started) * 1e3,
        "rows_per_s": size / (ended - started),
        "peak_kib": float(max(0, _peak_kib() - before)),
    }


def _peak_kib(fresh: bool = False) -> int:
    """The most memory that this process had (since it was asked afresh)."""
    if fresh:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


# --- filling a store ------------------------------------------------------------------------


def fill(place: Place, prefix: str, count: int) -> None:
    """So many locks that are held for an hour."""
    sample = f"{prefix}{0:09}"
    with holdfast.connect(place.url) as locks:
        locks.acquire(sample, ttl=3600, keep=False)
        FILLERS.get(place.store, _by_swaps)(place, sample, prefix, count)


def _by_swaps(place: Place, sample: str, prefix: str, count: int) -> None:
    store = open_store(place.url)
    record = store.load(sample).record
    swaps = [Swap(f"{prefix}{number:09}", None, record) for number in range(1, count)]
    batches = [swaps[start : start + BATCH] for start in range(0, len(swaps), BATCH)]
    with ThreadPoolExecutor(FILLERS_AT_ONCE) as pool:
        list(pool.map(store.swap_many, batches))
    store.close()


COLUMNS = "mode, owners, fence, expires_at, version, turn, record"


def _in_postgresql(place: Place, sample: str, prefix: str, count: int) -> None:
    with import_module("psycopg").connect(place.url) as connection:
        connection.execute(
            f"INSERT INTO holdfast_locks (key, {COLUMNS}) "
            f"SELECT %s || lpad(n::text, 9, '0'), {COLUMNS} "
            "FROM holdfast_locks, generate_series(1, %s) AS n WHERE key = %s",
            (prefix, count - 1, sample),
        )


def _in_mysql(place: Place, sample: str, prefix: str, count: int) -> None:
    connection = import_module("pymysql").connect(
        host="127.0.0.1", port=place.port, user="root", database="holdfast", autocommit=True
    )
    connection.cursor().execute(
        f"INSERT INTO holdfast_locks (`key`, {COLUMNS}) "
        f"SELECT CONCAT(%s, LPAD(seq, 9, '0')), {COLUMNS} "
        f"FROM holdfast_locks, seq_1_to_{count - 1} WHERE `key` = %s",
        (prefix, sample),
    )
    connection.close()


FILLERS: dict[str, Callable[[Place, str, str, int], None]] = {
    "postgresql": _in_postgresql,
    "mysql": _in_mysql,
}
