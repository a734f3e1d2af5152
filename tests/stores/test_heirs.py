"""A lock that is granted with the write that frees it, on the stores that know who waits there."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import Locks
from holdfast.core.records import SECOND, Record, Waiter
from holdfast.stores.base import Store
from holdfast.stores.registry import open_store
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisServer
from tests.engines.shared import shared
from tests.helpers import until

KINDS = ("sqlite", "file", "postgresql", "mysql", "redis")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sockets without files")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store."""
    if request.param == "postgresql":
        return shared(PostgreSQL).url()
    if request.param == "redis":
        return shared(RedisServer).url
    if request.param == "mysql":
        return shared(MariaDB).url()
    return f"{request.param}://{tmp_path}/locks"


@pytest.fixture
def clients(url: str) -> Iterator[list[Locks]]:
    """Two of them."""
    opened = [holdfast.connect(url, owner=f"c{number}", ttl=60) for number in range(2)]
    opened[0].setup()
    yield opened
    for client in opened:
        client.close()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """To look at the record."""
    opened = open_store(url)
    yield opened
    opened.close()


def waiting(locks: Locks, key: str, leases: list[holdfast.Lease]) -> threading.Thread:
    """A thread that acquires the lock."""
    thread = threading.Thread(
        target=lambda: leases.append(locks.acquire(key, timeout=60)), daemon=True
    )
    thread.start()
    return thread


def record_of(store: Store, key: str) -> Record:
    """What is there."""
    return store.load(key).record


def inherits(clients: list[Locks], store: Store) -> bool:
    """One client releases while another waits. Returns whether the release was its grant: a claim
    of its own would have another beat than its place."""
    key, leases = f"heirs/{uuid4().hex}", list[holdfast.Lease]()
    held = clients[0].acquire(key)
    thread = waiting(clients[1], key, leases)
    until(lambda: len(record_of(store, key).queue) == 1)
    held.renew()  # it learns who waits
    [place] = record_of(store, key).queue
    held.release()
    until(lambda: len(leases) == 1)
    thread.join(30)
    [holder] = record_of(store, key).holders
    assert (holder.owner, holder.token) == ("c1", place.token)
    assert leases[0].fence == holder.fence > held.fence
    assert 50 < leases[0].remaining() <= 60
    assert leases[0].release()
    assert record_of(store, key).holders == ()
    return holder.beat == place.beat


def test_whoever_waits_here_inherits(clients: list[Locks], store: Store) -> None:
    """Unless it renews its place just then: in that case it claims by itself."""
    assert any(inherits(clients, store) for _ in range(10))


def requests_of_an_heir(clients: list[Locks], store: Store, listens_after_s: float) -> list[str]:
    """One client releases while another waits. Returns what the other asks its store until it has
    the lock."""
    key, leases, asked = f"heirs/{uuid4().hex}", list[holdfast.Lease](), list[str]()
    held = clients[0].acquire(key)
    thread = waiting(clients[1], key, leases)
    until(lambda: len(record_of(store, key).queue) == 1)
    time.sleep(listens_after_s)
    with ExitStack() as stack:
        for name in ("load", "swap", "amend", "apply"):
            stack.enter_context(noted(clients[1]._client.store, name, asked))
        held.release()
        thread.join(30)
    assert not clients[1]._client.leases.cleaning.busy()  # a call that has ended is forgotten
    # What was not looked at is known all the same, and can be renewed and released.
    [holder] = record_of(store, key).holders
    assert leases[0].fence == holder.fence
    leases[0].renew()
    leases[0].check()
    assert leases[0].release()
    assert record_of(store, key).holders == ()
    return asked


@contextmanager
def noted(store: Store, name: str, asked: list[str]) -> Iterator[None]:
    """Note each call of this name."""
    original = getattr(store, name)

    def call(*args: Any, **options: Any) -> Any:
        asked.append(name)
        return original(*args, **options)

    with patch.object(store, name, call):
        yield


def test_whoever_inherits_asks_for_nothing(clients: list[Locks], store: Store) -> None:
    """The wake-up has brought the grant; unless a poll was faster, or it does not listen yet, or
    renews its place just then."""
    assert [] in [requests_of_an_heir(clients, store, turn * 0.02) for turn in range(10)]


def closes_while_it_waits(clients: list[Locks], url: str, key: str, pause_s: float) -> None:
    """One client is closed while a call of it waits, and another releases the lock at that time."""
    held, closing = clients[0].acquire(key), holdfast.connect(url, ttl=60)
    leases = list[holdfast.Lease]()

    def wait() -> None:
        with suppress(holdfast.ClientClosed):
            leases.append(closing.acquire(key, timeout=60))

    def release() -> None:
        time.sleep(pause_s)
        held.release()

    threads = [threading.Thread(target=wait), threading.Thread(target=release)]
    threads[0].start()
    until(lambda: len(clients[1].show(key).waiters) == 1)
    until(closing._client.leases.cleaning.busy)  # it waits: the answer to its claim has come
    threads[1].start()
    time.sleep(0.002)
    closing.close()
    for thread in threads:
        thread.join(30)


def test_a_client_that_is_closed_inherits_nothing(
    clients: list[Locks], store: Store, url: str
) -> None:
    """Its calls that wait leave nothing: neither a place, nor a lock that was granted to it just
    then and that only the ttl would free."""
    for turn in range(20):
        key = f"heirs/{uuid4().hex}"
        closes_while_it_waits(clients, url, key, turn * 0.0003)
        left = record_of(store, key)
        assert (left.holders, left.queue) == ((), ())


def test_nobody_inherits_who_is_not_there(clients: list[Locks], store: Store) -> None:
    """A place whose call is gone gets no grant: the lock is free when the place has run out."""
    key = f"heirs/{uuid4().hex}"
    held = clients[0].acquire(key)
    there = store.load(key)
    assert there.now is not None
    ends_at = there.now.latest + 3 * SECOND
    gone = Waiter("gone", "c9", "exclusive", 3 * SECOND, 1, ends_at, "beat", lease=60 * SECOND)
    store.swap(key, there.version, replace(there.record, queue=(gone,)))
    held.renew()
    held.release()
    assert record_of(store, key).holders == ()
    clients[1].acquire(key, timeout=60).release()
