"""Where `holdfast once` keeps what a command has written: a file, a directory or a URL."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.errors import BadOption
from holdfast.extras import needed
from holdfast.results.base import Codec, Found, Results

# Databases, and the extra that brings the driver.
_SQL = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sql",
}
_REDIS = ("redis", "rediss", "unix")


class Output(Struct, frozen=True):
    """What a command has written to its standard output, and its exit code."""

    code: int
    output: bytes


CODEC = Codec(msgspec.json.encode, msgspec.json.Decoder(Output).decode)


def place_of(into: str, ttl: float | None) -> Results:
    """Returns the place that `--into` names."""
    scheme, has_scheme, _ = into.partition("://")
    if not has_scheme:
        if into.endswith("/") or Path(into).is_dir():
            from holdfast.results.files import DirectoryResults

            return DirectoryResults(into, ttl=ttl, codec=CODEC)
        return OneFile(Path(into), ttl)
    kind = scheme.partition("+")[0]
    extra = "redis" if scheme in _REDIS else _SQL.get(kind, "blob")
    with needed("--into", extra):
        if scheme in _REDIS:
            return _redis(into, ttl)
        return _table(into, ttl) if kind in _SQL else _bucket(into, ttl)


def _redis(url: str, ttl: float | None) -> Results:
    import redis

    from holdfast.results.redis import RedisResults

    return RedisResults(redis.Redis.from_url(url), ttl=ttl, codec=CODEC)


def _table(url: str, ttl: float | None) -> Results:
    import sqlalchemy as sa
    from sqlalchemy.pool import NullPool

    from holdfast.results.sql import SQLResults

    scheme, _, rest = url.partition("://")
    drivers = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
    drivers |= {"mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
    engine = sa.create_engine(f"{drivers.get(scheme, scheme)}://{rest}", poolclass=NullPool)
    results = SQLResults(engine, ttl=ttl, codec=CODEC)
    results.setup()
    return results


def _bucket(url: str, ttl: float | None) -> Results:
    import obstore.store

    from holdfast.results.blob import BlobResults

    try:
        store: Any = obstore.store.from_url(url)
    except Exception as exc:
        raise BadOption(
            "--into is a file, a directory (with a / at its end), or the URL of Redis, of a "
            "database or of a bucket."
        ) from exc
    return BlobResults(store, ttl=ttl, codec=CODEC)


class OneFile(Results):
    """One file with the output of a command that has succeeded, as it is."""

    def __init__(self, path: Path, ttl: float | None) -> None:
        self._path = path
        self._ttl_s = ttl

    def find(self, key: str) -> Found | None:
        try:
            if self._ttl_s is not None and time.time() - self._path.stat().st_mtime >= self._ttl_s:
                return None
            return Found(Output(0, self._path.read_bytes()))
        except FileNotFoundError:
            return None

    def publish(self, key: str, value: Any, lease: Any) -> None:
        from holdfast.fencing import files

        if value.code:
            raise BadOption("A file cannot keep an exit code: use a directory or a URL.")
        files.write(self._path, value.output, lease, key=key)
