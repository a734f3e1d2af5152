"""The scripts and the rules give one answer on records that Holdfast does not write by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from holdfast.core.contract import Swapped
from holdfast.stores.redis import RedisStore
from holdfast.stores.registry import open_store
from tests.engines.redis import RedisServer
from tests.engines.shared import shared
from tests.helpers import unique
from tests.odd_records import commands, odd_records
from tests.stores.redis.test_rules import Model


@pytest.fixture(scope="module")
def store() -> Iterator[RedisStore]:
    """One server for all."""
    opened = open_store(shared(RedisServer).url)
    assert isinstance(opened, RedisStore)
    with closing(opened):
        yield opened


@pytest.mark.parametrize("name", odd_records(0))
def test_one_law(store: RedisStore, name: str) -> None:
    """Each command has the verdict of the rules and leaves their record; also when it arrives
    again, on what the first time has left."""
    for said, command in commands().items():
        now = store.load("any").now
        assert now is not None
        model = Model(store, unique())
        model.record = odd_records(now.latest)[name]
        written = store.swap(model.key, None, model.record)
        assert isinstance(written, Swapped), said
        model.version = written.version
        for beat in ("first", "second"):
            model.apply(command, beat)
