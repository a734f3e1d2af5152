"""Keys that are only kinds of strings: members of enumerations, and what else is made of one."""

from __future__ import annotations

import asyncio
import enum
from pathlib import Path
from typing import Any

import pytest

from holdfast import Busy, Locks, Want, aio
from tests.conformance.targets import TARGETS
from tests.helpers import unique

KINDS = ("memory", "sqlite", "postgresql", "mysql", "redis")


class Text(str):
    """A string with another name."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"

    __repr__ = __format__ = __str__  # type: ignore[assignment]


def kinds_of(key: str) -> list[str]:
    """The same key in other clothes."""
    kinds: list[Any] = [
        enum.Enum("Mixed", {"OTHER_NAME": key}, type=str),
        enum.StrEnum("Strict", {"OTHER_NAME": key}),
    ]
    return [Text(key), *(kind["OTHER_NAME"] for kind in kinds)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_the_key(kind: str, tmp_path: Path) -> None:
    """On every store they are the lock of their text, and everyone sees that text."""
    plain = unique()
    target = TARGETS[kind](tmp_path)
    with Locks(target.open()) as locks, Locks(target.open()) as others:
        for key in kinds_of(plain):
            with locks.acquire(key, owner=key) as lease:
                assert type(lease.key) is type(lease.owner) is str
                with pytest.raises(Busy) as busy:
                    others.acquire(plain, timeout=0)
                assert f"held by {plain}" in str(busy.value)
                assert others.join(lease.share()).key == plain
                assert [info.key for info in others.list(key)] == [plain]
                assert [holder.owner for holder in others.show(key).holders] == [plain]
                with pytest.raises(Busy):
                    others.wait_until_free(key, timeout=0)
            leases = locks.acquire_all([key, Want(f"{plain}2")])
            assert leases[plain].held
            assert len(others.evict(key)) == 1
            leases.release()


def test_the_text_is_the_key_for_asyncio() -> None:
    """The same for tasks."""

    async def run() -> None:
        async with aio.connect(f"memory://{unique()}") as locks:
            for key in kinds_of("k"):
                async with locks.acquire(key, owner=key) as lease:
                    assert type(lease.key) is type(lease.owner) is str
                    seen = await locks.show(key)
                    assert [type(holder.key) for holder in seen.holders] == [str]
                    assert [type(info.key) async for info in locks.list(key)] == [str]
                lease = await locks.acquire(key)
                assert len(await locks.evict(key)) == 1
                assert await lease.release() is False

    asyncio.run(run())
