"""What an operation asks of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import Contestant, Peer
from benchmarks.peers.base import Entrant
from benchmarks.peers.ours import Holdfast
from benchmarks.sites import Place
from benchmarks.wire import Count, countable, counted


class Requests(Workload):
    """Counted on the wire; statements, for SQLite."""

    name = "requests"
    title = "Requests to the engine"
    about = (
        "Messages that go to the server in one piece, counted by a proxy in front of it; where the "
        "engine is SQLite, SQL statements. It counts all that a library sends, also what is not "
        'about the lock itself. "Find it taken" is a `try_acquire` by the client that holds the '
        "lock: it knows, and sends nothing. Other clients send one request."
    )
    columns = (
        Column("pair", "acquire and release", digits=0),
        Column("warm", "acquire", digits=0),
        Column("release", "release", digits=0),
        Column("cold", "acquire a new key", digits=0),
        Column("renew", "renew", digits=0),
        Column("refused", "find it taken", digits=0),
    )

    def fits(self, place: Place) -> bool:
        return countable(place)

    def takes(self, contestant: type[Contestant]) -> bool:
        files = contestant.stores == ("sqlite",)  # those make system calls, not statements
        return super().takes(contestant) and not files

    def rounds(self, scale: Scale, size: int) -> int:
        return 3

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        with (
            counted(entrant.place) as wire,
            replace(entrant, place=wire.place).peer() as peer,
        ):
            _measure(peer, wire.count)
            yield lambda: _measure(peer, wire.count)


def _measure(peer: Peer, count: Count) -> Figures:
    found: Figures = {}

    @contextmanager
    def noting(name: str) -> Iterator[None]:
        before = count()
        yield
        found[name] = float(count() - before)

    key = f"counted/{uuid4().hex}"
    for name in ("cold", "warm"):
        with noting(name):
            lock = peer.lock(key)
            lock.__enter__()
        with noting("release"):
            lock.__exit__(None, None, None)
    found["pair"] = found["warm"] + found["release"]  # type: ignore[operator]
    if isinstance(peer, Holdfast):
        with peer.locks.acquire(key) as lease:
            with noting("renew"):
                lease.renew()
            with noting("refused"):
                assert peer.locks.try_acquire(key) is None
    return found
