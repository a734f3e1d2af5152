"""What a claim costs Redis while many wait for the same lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from benchmarks.harness import Column, Figures, Scale, Turn, Workload
from benchmarks.peers import Contestant
from benchmarks.peers.base import Entrant
from benchmarks.peers.ours import Holdfast
from benchmarks.sites import Place
from holdfast.core.commands import Claim, Command, Free
from holdfast.core.records import SECOND
from holdfast.core.steps import BEAT_BYTES
from holdfast.stores.registry import open_store
from tests.engines.redis import client

KEY, TTL = "long", 600 * SECOND
CLAIMS = 100


class LongQueue(Workload):
    """The server's own figure, by its statistics of commands."""

    name = "long-queue"
    title = "A claim on Redis behind a long queue"
    about = (
        "How long the server's script runs, by the server's own statistics, for a claim that takes "
        "a place at the end of the queue, and for giving that place up."
    )
    columns = (
        Column("claim_us", "a claim, µs of the server"),
        Column("free_us", "giving it up, µs of the server"),
    )
    size_name = "waiting"
    quick = False

    def fits(self, place: Place) -> bool:
        return place.store == "redis"

    def takes(self, contestant: type[Contestant]) -> bool:
        return contestant is Holdfast

    def sizes(self, scale: Scale, store: str) -> tuple[int, ...]:
        return (scale.queue,)

    def rounds(self, scale: Scale, size: int) -> int:
        return 1

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        store = open_store(entrant.place.url)
        with client(entrant.place.port) as redis:
            for _ in range(size + 1):  # the first one holds it
                _apply(store, _claim())
            yield lambda: _late_claims(store, redis)
        store.close()


def _late_claims(store: Any, redis: Any) -> Figures:
    claims: list[float] = []
    frees: list[float] = []
    for late in [_claim() for _ in range(CLAIMS)]:
        for command, found in ((late, claims), (Free(late.token), frees)):
            redis.config_resetstat()
            _apply(store, command)
            found.append(_script_us(redis))
    return {"claim_us": claims, "free_us": frees}


def _claim() -> Claim:
    """Somebody who wants the lock, and takes a place."""
    return Claim(uuid4().hex, "me", "exclusive", TTL, queue=True, patience=TTL)


def _apply(store: Any, command: Command) -> None:
    store.apply(KEY, command, uuid4().hex[: 2 * BEAT_BYTES])


def _script_us(redis: Any) -> float:
    stats = redis.info("commandstats")
    return float(sum(stats[name]["usec"] for name in stats if "eval" in name or "fcall" in name))
