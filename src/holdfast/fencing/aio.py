"""The asyncio face of `holdfast.fencing`: the same names, awaited.

from holdfast.fencing import aio

async with engine.begin() as tx:
    await aio.sql.admit(tx, lease)
    await tx.execute(...)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.fencing import http as http
    from holdfast.fencing.blob import aio as blob
    from holdfast.fencing.dynamodb import aio as dynamodb
    from holdfast.fencing.files import aio as files
    from holdfast.fencing.redis import aio as redis
    from holdfast.fencing.sql import aio as sql

__all__ = ["blob", "dynamodb", "files", "http", "redis", "sql"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # One middleware is for asyncio and one is not, and the rest needs no waiting.
    return import_module(f"holdfast.fencing.{name}" + ("" if name == "http" else ".aio"))
