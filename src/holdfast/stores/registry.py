"""Opens the store that a URL names, or that works on an object of a driver.

Built-in stores are named here and imported on use; others register the entry-point group
`holdfast.stores` (name: the URL scheme, value: a `Store` subclass).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from holdfast.errors import BadOption, BadURL, Misconfigured, Unavailable
from holdfast.extras import needed
from holdfast.stores.base import Store
from holdfast.stores.shortage import ADVICE, out_of_descriptors
from holdfast.stores.url import parse

ENTRY_POINTS = "holdfast.stores"

BUILT_IN: dict[str, str] = {
    "dynamodb": "holdfast.stores.dynamodb:DynamoDBStore",
    "az": "holdfast.stores.blob.store:BlobStore",
    "file": "holdfast.stores.directory.store:DirectoryStore",
    "gs": "holdfast.stores.blob.store:BlobStore",
    "memory": "holdfast.stores.memory:MemoryStore",
    "mysql": "holdfast.stores.sql:SQLStore",
    "null": "holdfast.stores.null:NullStore",
    "postgresql": "holdfast.stores.sql:SQLStore",
    "redis": "holdfast.stores.redis:RedisStore",
    "redis+cluster": "holdfast.stores.redis:RedisStore",
    "redis+sentinel": "holdfast.stores.redis:RedisStore",
    "s3": "holdfast.stores.blob.store:BlobStore",
    "sqlite": "holdfast.stores.sqlite:SQLiteStore",
}

# Other spellings of built-in schemes.
ALIASES: dict[str, str] = {
    "abfs": "az",
    "abfss": "az",
    "gcs": "gs",
    "mariadb": "mysql",
    "mariadb+pymysql": "mysql",
    "mysql+pymysql": "mysql",
    "postgres": "postgresql",
    "postgresql+psycopg": "postgresql",
    "rediss": "redis",
    "rediss+cluster": "redis+cluster",
    "rediss+sentinel": "redis+sentinel",
    "s3a": "s3",
    "unix": "redis",
    "valkey": "redis",
    "valkeys": "redis",
}

# Libraries whose objects can be opened too, by the top-level module of their class. The store
# has a classmethod `from_object(object, **options)`.
ADOPTERS: dict[str, str] = {
    "boto3": "holdfast.stores.dynamodb:DynamoDBStore",
    "botocore": "holdfast.stores.dynamodb:DynamoDBStore",
    "obstore": "holdfast.stores.blob.store:BlobStore",
    "redis": "holdfast.stores.redis:RedisStore",
    "sqlalchemy": "holdfast.stores.sql:SQLStore",
}

# The extra that brings the driver of a store: `pip install 'holdfast[extra]'`.
EXTRAS: dict[str, str] = {
    "dynamodb": "dynamodb",
    "az": "blob",
    "gs": "blob",
    "mysql": "mysql",
    "postgresql": "postgres",
    "redis": "redis",
    "redis+cluster": "redis",
    "redis+sentinel": "redis",
    "s3": "blob",
}


def open_store(url: Any, **options: Any) -> Store:
    """Open the store at this URL, or on this object of a driver (`ADOPTERS`).

    Returns a store that is open already as it is.
    """
    if isinstance(url, Store):
        if options:
            names = ", ".join(sorted(options))
            raise BadOption(f"This store is open already, and cannot be given {names}.")
        return url
    try:
        return _opened(url, options)
    except (OSError, ImportError) as exc:
        # A driver whose files cannot be opened now looks like one that is not installed.
        if out_of_descriptors(exc):
            raise Unavailable(ADVICE) from exc
        raise


def _opened(url: Any, options: dict[str, Any]) -> Store:
    if not isinstance(url, str):
        return _adopt(url, options)
    parsed = parse(url)
    scheme = ALIASES.get(parsed.scheme, parsed.scheme)
    return _store_class(scheme).from_url(parsed, **options)


def _adopt(found: Any, options: dict[str, Any]) -> Store:
    for kind in type(found).__mro__:
        target = ADOPTERS.get(kind.__module__.partition(".")[0])
        if target is not None:
            return cast("Store", _named(target).from_object(found, **options))
    raise BadURL(f"A store is named by its URL, not by a {type(found).__name__}.")


def schemes() -> list[str]:
    """Returns all URL schemes that can be opened here."""
    return sorted({*BUILT_IN, *ALIASES, *(point.name for point in _entry_points())})


def _store_class(scheme: str) -> type[Store]:
    target = BUILT_IN.get(scheme)
    with needed(f"The {scheme} store", EXTRAS.get(scheme)):
        if target is not None:
            return cast("type[Store]", _named(target))
        for point in _entry_points():
            if point.name == scheme:
                return _plug_in(point)
    raise BadURL(f"There is no store for {scheme}: URLs. Known are {', '.join(schemes())}.")


def _named(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def _plug_in(point: Any) -> type[Store]:
    cause: Exception | None = None
    try:
        found = point.load()
    except AttributeError as exc:
        found, cause = None, exc
    if not isinstance(found, type) or not issubclass(found, Store):
        raise Misconfigured(
            f"The plug-in for {point.name}: URLs is broken: {point.value} is not a store."
        ) from cause
    return found


def _entry_points() -> Any:
    from importlib.metadata import entry_points

    return entry_points(group=ENTRY_POINTS)
