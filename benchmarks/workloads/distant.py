"""The same with a network between the clients and the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from benchmarks.distance import far_away
from benchmarks.harness import Scale, Turn
from benchmarks.peers import Contestant
from benchmarks.peers.base import Entrant
from benchmarks.sites import EMULATED, Place
from benchmarks.workloads.contended import CONTENDERS, Contended
from benchmarks.workloads.pair import WarmPair

ABOUT = "As above, but each request takes {0} longer, as to a server {1}."


class NearPair(WarmPair):
    """Half a millisecond: another machine of the same site."""

    name = "near"
    title = "An uncontended pair, with 0.5 ms of round trip added"
    about = ABOUT.format("0.5 ms", "on another machine of the same site")
    round_trip_s = 0.0005
    quick_for_all = False

    def fits(self, place: Place) -> bool:
        return _is_server(place)

    def takes(self, contestant: type[Contestant]) -> bool:
        return super().takes(contestant) and (contestant.kind != "peer" or contestant.prominent)

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        with (
            far_away(entrant.place, self.round_trip_s) as place,
            super().open(replace(entrant, place=place), size, scale) as turn,
        ):
            yield turn


class FarPair(NearPair):
    """Five milliseconds: another site nearby."""

    name = "far"
    title = "An uncontended pair, with 5 ms of round trip added"
    about = ABOUT.format("5 ms", "at another site")
    round_trip_s = 0.005


class NearContended(Contended):
    """The same for many processes that want one key."""

    name = "near-contended"
    title = f"{CONTENDERS} processes, one key, with 0.5 ms of round trip added"
    about = ABOUT.format("0.5 ms", "on another machine of the same site")
    round_trip_s = 0.0005
    quick = False

    def fits(self, place: Place) -> bool:
        return _is_server(place)

    def takes(self, contestant: type[Contestant]) -> bool:
        return super().takes(contestant) and contestant.prominent

    def sizes(self, scale: Scale, store: str) -> tuple[int, ...]:
        return (min(CONTENDERS, max(scale.contenders)),)

    @contextmanager
    def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
        with (
            far_away(entrant.place, self.round_trip_s) as place,
            super().open(replace(entrant, place=place), size, scale) as turn,
        ):
            yield turn


class FarContended(NearContended):
    """Five milliseconds."""

    name = "far-contended"
    title = f"{CONTENDERS} processes, one key, with 5 ms of round trip added"
    about = ABOUT.format("5 ms", "at another site")
    round_trip_s = 0.005


def _is_server(place: Place) -> bool:
    # An emulator needs several milliseconds for a request anyway.
    return bool(place.port) and place.store not in EMULATED
