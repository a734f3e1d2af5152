"""From a URL to an open store.

Built-in stores are named here and imported on use; others register the entry-point group
`holdfast.stores` (name: the URL scheme, value: a `Store` subclass).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from holdfast.errors import BadURL, MissingDriver
from holdfast.stores.base import Store
from holdfast.stores.url import parse

ENTRY_POINTS = "holdfast.stores"

BUILT_IN: dict[str, str] = {
    "memory": "holdfast.stores.memory:MemoryStore",
    "null": "holdfast.stores.null:NullStore",
    "sqlite": "holdfast.stores.sqlite:SQLiteStore",
    **dict.fromkeys(
        (
            "redis", "rediss", "valkey", "valkeys", "unix", "redis+sentinel", "rediss+sentinel",
            "redis+cluster", "rediss+cluster",
        ),
        "holdfast.stores.redis:RedisStore",
    ),
}  # fmt: skip

# The extra that brings the driver of a store: `pip install 'holdfast[extra]'`.
EXTRAS: dict[str, str] = {
    scheme: "redis" for scheme, target in BUILT_IN.items() if ".redis:" in target
}

# Objects of other libraries that stand for a store, by the library that their class is from.
ADOPTERS: dict[str, str] = {
    "redis": "holdfast.stores.redis:RedisStore",
}


def open_store(url: Any, **options: Any) -> Store:
    """Open the store at this URL, or behind a client that exists; a store is taken as it is."""
    if isinstance(url, Store):
        return url
    if not isinstance(url, str):
        return _adopt(url, options)
    parsed = parse(url)
    return _store_class(parsed.scheme).from_url(parsed, **options)


def _adopt(thing: Any, options: dict[str, Any]) -> Store:
    for base in type(thing).__mro__:
        target = ADOPTERS.get(base.__module__.partition(".")[0])
        if target is not None:
            adopter: Any = _imported(target)
            return cast("Store", adopter.from_object(thing, **options))
    raise BadURL(f"A store is named by its URL, not by a {type(thing).__name__}.")


def _imported(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def schemes() -> list[str]:
    """All URL schemes that can be opened here."""
    return sorted({*BUILT_IN, *(point.name for point in _entry_points())})


def _store_class(scheme: str) -> type[Store]:
    target = BUILT_IN.get(scheme)
    try:
        if target is not None:
            return cast("type[Store]", _imported(target))
        for point in _entry_points():
            if point.name == scheme:
                return cast("type[Store]", point.load())
    except ImportError as exc:
        extra = EXTRAS.get(scheme)
        what = f"pip install 'holdfast[{extra}]'" if extra else f"install {exc.name}"
        raise MissingDriver(f"The {scheme} store needs {exc.name}: {what}") from exc
    raise BadURL(f"There is no store for {scheme}: URLs. Known are {', '.join(schemes())}.")


def _entry_points() -> Any:
    from importlib.metadata import entry_points

    return entry_points(group=ENTRY_POINTS)
