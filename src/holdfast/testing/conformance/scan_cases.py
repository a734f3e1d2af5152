"""What every store must show in a listing."""

from __future__ import annotations

from typing import Any

from holdfast.core.contract import Swapped
from holdfast.core.records import Record
from holdfast.testing.conformance.samples import EXACT_KEYS, record
from holdfast.testing.conformance.world import World, case


@case
async def scan_is_paged_in_order(world: World) -> None:
    """A listing comes in pages, in the order of the keys, each key once."""
    store = world.raw()
    names = sorted(world.key(f"{i:02d}") for i in range(25))
    for number, key in enumerate(names):
        await store.swap(key, None, Record(number))
    seen, cursor, pages = [], None, 0
    while True:
        page = await store.scan(world.key(""), cursor, 10)
        assert len(page.entries) <= 10
        seen += [(key, entry.record.fence) for key, entry in page.entries]
        pages, cursor = pages + 1, page.cursor
        if cursor is None:
            break
    assert seen == [(key, number) for number, key in enumerate(names)]
    assert pages >= 3


PREFIXES = {"%": "%a", "_": "_b", "A": "A1", "é": "é1", "[": "[a-z]", "*": "*c"}


@case
async def scan_takes_the_prefix_literally(world: World) -> None:
    """Wildcards, cases and accents in a prefix mean themselves."""
    store = world.raw()
    for name in ("%a", "xa", "_b", "xb", "A1", "a1", "é1", "e1", "[a-z]", "b", "*c"):
        await store.swap(world.key(name), None, Record(1))
    for prefix, expected in PREFIXES.items():
        page = await store.scan(world.key(prefix), None, 10)
        assert [key for key, _ in page.entries] == [world.key(expected)], prefix


ODD_PREFIXES = (
    ".", "..", "...", "./", "../", "/", "//", "/.", "a/", "a//", "a/.", "%", "%2", "%2F", "%00",
    "?", "#", "&", "=", "+", "~", "-", ":", "\\", " ", "\t", "\n", "*", "[", "^", "$", "{", "'",
    '"', "é", "\uff5e", "🔒", "\x7f", "NoSuchBucket", "LastModified",
)  # fmt: skip


@case
async def prefixes_are_exact(world: World) -> None:
    """Whatever a prefix looks like, all keys that begin so are listed, and no others."""
    store = world.raw()
    keys = {f"{prefix}{world.run}" for prefix in ODD_PREFIXES}
    for key in keys:
        assert isinstance(await store.swap(key, None, Record(1)), Swapped), key
    for prefix in ODD_PREFIXES:
        found = await scanned(store, prefix, 100)
        assert all(key.startswith(prefix) for key in found), prefix
        assert keys.intersection(found) == {key for key in keys if key.startswith(prefix)}, prefix
        for end in (".", "/", "/.", "/.."):
            assert await scanned(store, f"{prefix}{world.run}{end}", 100) == [], prefix


async def scanned(store: Any, prefix: str, limit: int) -> list[str]:
    """The keys of a listing, page by page."""
    keys: list[str] = []
    cursor = None
    while True:
        page = await store.scan(prefix, cursor, limit)
        assert len(page.entries) <= limit
        keys += [key for key, _ in page.entries]
        if page.cursor is None:
            return keys
        cursor = page.cursor


@case
async def scan_shows_every_key_once(world: World) -> None:
    """Whatever keys look like and wherever pages end, a listing has each of them once."""
    store, keys = world.raw(), sorted(world.key(name) for name in EXACT_KEYS)
    for key in keys:
        await store.swap(key, None, Record(1))
    for limit in (5, len(keys), len(keys) + 1):
        assert sorted(await scanned(store, world.key(""), limit)) == keys, limit


@case
async def scan_ends_with_the_prefix(world: World) -> None:
    """What comes before and after the keys with a prefix is in no page, wherever pages end."""
    names = ("b", "b0", "b1", "bé", "b\uff5e", "b🔒")  # UTF-16 would have the last two turned round
    store, inside = world.raw(), [world.key(name) for name in names]
    for key in (*inside, world.key("a"), world.key("c"), world.key("B3")):
        await store.swap(key, None, Record(1))
    for limit in (1, 2, 5, 10):
        assert sorted(await scanned(store, world.key("b"), limit)) == inside, limit


@case
async def scan_goes_on_where_a_record_was_dropped(world: World) -> None:
    """A listing whose last key was dropped meanwhile goes on with the next: so does a purge."""
    store, keys = world.raw(), [world.key(f"{i}") for i in range(5)]
    for key in keys:
        await store.swap(key, None, Record(1))
    seen, cursor = [], None
    while True:
        page = await store.scan(world.key(""), cursor, 2)
        for key, entry in page.entries:
            seen.append(key)
            assert isinstance(await store.swap(key, entry.version, None), Swapped)
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == keys
    assert await scanned(store, world.key(""), 2) == []


@case
async def scan_goes_past_what_was_dropped(world: World) -> None:
    """Whatever a store leaves behind of dropped records: a listing does not end there."""
    store, keys = world.raw(), [world.key(f"{i}") for i in range(7)]
    for key in keys:
        swapped = await store.swap(key, None, Record(1))
        if key != keys[0] and key != keys[6]:
            await store.swap(key, swapped.version, None)
    for limit in (1, 2, 5):
        assert await scanned(store, world.key(""), limit) == [keys[0], keys[6]], limit


@case
async def scanned_versions_can_be_swapped(world: World) -> None:
    """What a listing shows is good for a swap."""
    store, key = world.raw(), world.key()
    await store.swap(key, None, record(1))
    page = await store.scan(key, None, 10)
    ((_, entry),) = page.entries
    assert isinstance(await store.swap(key, entry.version, None), Swapped)
