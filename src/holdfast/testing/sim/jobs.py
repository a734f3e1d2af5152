"""A search in pieces, by several processes, that says now and then how far it has come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice

from holdfast.testing.sim.plan import Options
from holdfast.testing.sim.runs import Found, search

PIECE = 200  # seeds
TELL_EVERY_S = 60.0


class _Tally:
    """What all pieces have found together."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.found = Found(0, 0, None)
        self._say = say
        self._told_at = time.monotonic()

    def add(self, found: Found) -> None:
        before, now = self.found, time.monotonic()
        self.found = Found(
            before.histories + found.histories,
            before.effects + found.effects,
            before.failure or found.failure,
        )
        if now - self._told_at > TELL_EVERY_S:
            self._told_at = now
            self._say(f"{self.found.histories} histories so far")


def search_in_jobs(
    options: Options, seeds: range, ends_at: float, jobs: int, say: Callable[[str], None]
) -> Found:
    """Search in so many processes; one stays in this process. It ends with the first failure."""
    tally = _Tally(say)
    pieces = (seeds[at : at + PIECE] for at in range(0, len(seeds), PIECE))
    if jobs == 1:
        for piece in pieces:
            tally.add(search(options, piece.start, len(piece), ends_at))
            if tally.found.failure or time.monotonic() >= ends_at:
                break
        return tally.found
    with ProcessPoolExecutor(jobs) as pool:
        _search_in_pool(pool, jobs, pieces, options, ends_at, tally)
    return tally.found


def _search_in_pool(
    pool: ProcessPoolExecutor,
    jobs: int,
    pieces: Iterator[range],
    options: Options,
    ends_at: float,
    tally: _Tally,
) -> None:
    under_way: set[Future[Found]] = set()
    while True:
        if tally.found.failure is None and time.monotonic() < ends_at:
            for piece in islice(pieces, jobs - len(under_way)):
                under_way.add(pool.submit(search, options, piece.start, len(piece), ends_at))
        if not under_way:
            return
        done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
        for each in done:
            tally.add(each.result())
