"""Writes that a stale holder cannot make: the fence of a lease, compared where the data is.

    from holdfast import fencing

    with engine.begin() as tx:
        fencing.sql.admit(tx, lease)  # StaleFence, and the transaction rolls back
        tx.execute(...)

One module for each kind of target, imported on first use. `from holdfast.fencing import aio`
has the same names, awaited.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.errors import KeyMismatch, StaleFence
from holdfast.fencing.gate import Fence

if TYPE_CHECKING:
    from holdfast.fencing import aio as aio
    from holdfast.fencing import blob as blob
    from holdfast.fencing import dynamodb as dynamodb
    from holdfast.fencing import files as files
    from holdfast.fencing import http as http
    from holdfast.fencing import redis as redis
    from holdfast.fencing import sql as sql

__all__ = [
    "Fence",
    "KeyMismatch",
    "StaleFence",
    "aio",
    "blob",
    "dynamodb",
    "files",
    "http",
    "redis",
    "sql",
]

_LATER = ("aio", "blob", "dynamodb", "files", "http", "redis", "sql")


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
