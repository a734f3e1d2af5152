"""Who takes part. To add one, write a class like those in these modules; that is all.

class MyLock(Peer):
    \"\"\"What it is.\"\"\"

    stores = ("redis",)
    name = "mylock"
    package = "mylock"  # what pip calls it

    def __init__(self, place: Place) -> None:
        self._mylock = import_module("mylock").Client(port=place.port)

    def lock(self, key: str) -> Any:
        return self._mylock.lock(key)  # a context manager
"""

from __future__ import annotations

import importlib
import pkgutil
from inspect import isabstract

from benchmarks.peers.base import AsyncPeer, Contestant, Peer

__all__ = ["AsyncPeer", "Contestant", "Peer", "contestants"]


def contestants(store: str | None = None) -> list[type[Contestant]]:
    """All that take part (on one store): ours first, the floor last."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    found = [
        kind
        for kind in _subclasses(Contestant)  # type: ignore[type-abstract]
        if kind.stores and not isabstract(kind)
    ]
    order = ("ours", "peer", "floor")
    found.sort(key=lambda kind: (order.index(kind.kind), kind.name))
    return [kind for kind in found if store is None or store in kind.stores]


def _subclasses(kind: type[Contestant]) -> list[type[Contestant]]:
    found = []
    for child in kind.__subclasses__():
        found += [child, *_subclasses(child)]
    return found
