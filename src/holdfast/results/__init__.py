"""Places for the results of `once`, each written through the fence of its maker.

    results = holdfast.results.DirectoryResults("/var/lib/app/results", ttl=3600)
    report = locks.once("report:2026-11", into=results, make=compute)

`DirectoryResults`, `BlobResults` (obstore), `RedisResults` (redis-py) and `SQLResults` (SQLAlchemy)
are imported on first use. A place of your own is a `Results`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.extras import needed
from holdfast.results.base import BYTES, JSON, Codec, Found, Results

if TYPE_CHECKING:
    from holdfast.results.blob import BlobResults
    from holdfast.results.files import DirectoryResults
    from holdfast.results.redis import RedisResults
    from holdfast.results.sql import SQLResults

__all__ = [
    "BYTES",
    "JSON",
    "BlobResults",
    "Codec",
    "DirectoryResults",
    "Found",
    "RedisResults",
    "Results",
    "SQLResults",
]

# Where each is, and the extra that it needs.
_LATER = {
    "BlobResults": ("blob", "blob"),
    "DirectoryResults": ("files", None),
    "RedisResults": ("redis", "redis"),
    "SQLResults": ("sql", "sql"),
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _LATER[name]
    with needed(f"{__name__}.{name}", extra):
        return getattr(import_module(f"{__name__}.{module}"), name)
