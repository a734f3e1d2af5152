"""The `ResourceLocker` drop-in: what the original does, and what is new."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from threading import Event
from typing import Any

import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.pool import NullPool

from holdfast.dropin.resource_lock import Client, LockException, Resource, ResourceLocker

Make = Callable[[str], ResourceLocker]
URI = "mysql://host/homo_sapiens_core"


# --- as before ------------------------------------------------------------------------------


def test_clients(locker: ResourceLocker) -> None:
    """Clients are made when first named, found again, listed and deleted."""
    client = locker.get_client("ann")
    assert client == Client(client.client_id, "ann")
    assert locker.get_client("ann") == client
    assert locker.get_client_by_id(client.client_id) == client
    assert client.to_dict() == {"client_id": client.client_id, "name": "ann"}
    assert repr(client) == f"<Client(client_id={client.client_id}, name='ann')>"
    again = locker.get_client
    for way in ("itself", "name", "client_id"):
        locker.delete_client(getattr(again("ann"), way, again("ann")))
        assert locker.get_clients() == []
    assert locker.get_client_by_id(client.client_id) is None


def test_resources(locker: ResourceLocker) -> None:
    """Resources likewise."""
    resource = locker.get_resource(URI)
    assert resource == Resource(resource.resource_id, URI)
    assert locker.get_resource(URI) == resource
    assert locker.get_resource_by_id(resource.resource_id) == resource
    assert resource.to_dict() == {"resource_id": resource.resource_id, "uri": URI}
    assert repr(resource) == f"<Resource(resource_id={resource.resource_id}, uri='{URI}')>"
    again = locker.get_resource
    for way in ("itself", "uri", "resource_id"):
        locker.delete_resource(getattr(again(URI), way, again(URI)))
        assert locker.get_resources() == []
    assert locker.get_resource_by_id(resource.resource_id) is None


@pytest.mark.parametrize("lock_type", ["read", "write"])
def test_lock_and_unlock(locker: ResourceLocker, lock_type: str) -> None:
    """A lock is a row that can be found in every way, until it is unlocked."""
    lock = locker.lock("ann", URI, lock_type)
    other = "write" if lock_type == "read" else "read"
    assert (lock.lock_type, lock.client.name, lock.resource.uri) == (lock_type, "ann", URI)
    assert lock.client_id == lock.client.client_id
    assert lock.resource_id == lock.resource.resource_id
    assert abs(datetime.now(UTC).replace(tzinfo=None) - lock.created) < timedelta(minutes=1)
    assert locker.get_lock(lock.resource_lock_id) == lock
    for found in ({}, {"client_name": "ann"}, {"resource_uri": URI}, {"lock_type": lock_type},
                  {"client_name": "ann", "resource_uri": URI, "lock_type": lock_type}):  # fmt: skip
        assert locker.get_locks(**found) == [lock]
    for missing in ({"client_name": "bob"}, {"resource_uri": "x"}, {"lock_type": other}):
        assert locker.get_locks(**missing) == []
    shown = lock.to_dict()
    assert shown["client"] == lock.client.to_dict()
    assert shown["resource"] == lock.resource.to_dict()
    assert (shown["lock_type"], shown["created"]) == (lock_type, lock.created)
    assert f"lock_type='{lock_type}', client='ann', resource='{URI}'" in repr(lock)
    locker.unlock(lock)
    assert locker.get_locks() == []
    assert locker.get_lock(lock.resource_lock_id) is None


def test_who_excludes_whom(locker: ResourceLocker) -> None:
    """Readers share; a writer is alone; other resources are free; nothing is reentrant."""
    one, two = locker.lock("ann", URI, "read"), locker.lock("ann", URI, "read")
    with pytest.raises(LockException):
        locker.lock("ann", URI, "write")
    locker.unlock(one)
    with pytest.raises(LockException):
        locker.lock("bob", URI, "write")
    locker.unlock(two.resource_lock_id)
    writer = locker.lock("bob", URI, "write")
    for lock_type in ("read", "write"):
        with pytest.raises(LockException, match="homo_sapiens"):
            locker.lock("bob", URI, lock_type)
    locker.unlock(locker.lock("ann", "another", "write"))
    locker.unlock(writer)
    locker.unlock(locker.lock("ann", URI, "read"))


def test_what_is_not_there(locker: ResourceLocker) -> None:
    """Unknown types, locks, clients and resources are `ValueError`s."""
    with pytest.raises(ValueError, match="lock_type"):
        locker.lock("ann", URI, "borrow")
    assert locker.get_clients() == []
    lock = locker.lock("ann", URI, "read")
    locker.unlock(lock)
    for unlock in (lock, lock.resource_lock_id, 4711):
        with pytest.raises(ValueError, match="No lock"):
            locker.unlock(unlock)
    for delete, what in ((locker.delete_client, "nobody"), (locker.delete_resource, "nothing")):
        for which in (what, 4711):
            with pytest.raises(ValueError, match=str(which)):
                delete(which)


def test_nobody_is_deleted_who_has_a_lock(locker: ResourceLocker) -> None:
    """A client or resource with locks stays."""
    lock = locker.lock("ann", URI, "read")
    with pytest.raises(LockException):
        locker.delete_client("ann")
    with pytest.raises(LockException):
        locker.delete_resource(URI)
    locker.unlock(lock)
    locker.delete_client(lock.client)
    locker.delete_resource(lock.resource)


def test_the_tables_are_the_originals(locker: ResourceLocker, database: str) -> None:
    """Names, columns and keys are as the original makes them; nothing else is made."""
    found = inspect(create_engine(database, poolclass=NullPool))
    columns = {
        name: [c["name"] for c in found.get_columns(name)] for name in found.get_table_names()
    }
    assert columns == {
        "client": ["client_id", "name"],
        "resource": ["resource_id", "uri"],
        "resource_lock": ["resource_lock_id", "lock_type", "created", "client_id", "resource_id"],
    }
    assert {key["referred_table"] for key in found.get_foreign_keys("resource_lock")} == {
        "client",
        "resource",
    }


# --- better than before ---------------------------------------------------------------------


def test_lockers_do_not_share_a_session(locker_at: Make, tmp_path: Any) -> None:
    """Two lockers on two databases know nothing of each other."""
    one = locker_at(f"sqlite:///{tmp_path}/one.db")
    two = locker_at(f"sqlite:///{tmp_path}/two.db")
    one.lock("ann", URI, "write")
    assert two.get_locks() == []
    two.lock("ann", URI, "write")


def test_many_start_at_once(database: str, locker_at: Make) -> None:
    """Workers that start together on an empty database make the tables once."""
    with ThreadPoolExecutor(6) as pool:
        lockers = list(pool.map(locker_at, [database] * 6))
        clients = set(pool.map(lambda locker: locker.get_client("ann").client_id, lockers))
    assert len(clients) == 1


def test_one_writer_of_many(database: str, locker_at: Make) -> None:
    """Of many who want to write at once, one gets it, every time."""
    lockers = [locker_at(database) for _ in range(4)]

    def attempt(locker: ResourceLocker) -> Any:
        try:
            return locker.lock("ann", URI, "write")
        except LockException:
            return None

    with ThreadPoolExecutor(4) as pool:
        for _ in range(8):
            got = [lock for lock in pool.map(attempt, lockers) if lock is not None]
            assert len(got) == 1
            lockers[0].unlock(got[0])


def test_readers_and_writers_take_turns(database: str, locker_at: Make) -> None:
    """Many who wait for their turn never meet where they must not."""
    held: list[tuple[str, float, float]] = []

    def work(number: int) -> None:
        locker = locker_at(database)
        for turn in range(5):
            kind = "write" if (turn + number) % 2 else "read"
            with locker.lock(f"client {number}", URI, kind, wait=60):
                started = time.monotonic()
                time.sleep(0.002)
                held.append((kind, started, time.monotonic()))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(held) == 20
    held.sort(key=lambda span: span[1])
    for before, after in pairwise(held):
        if "write" in (before[0], after[0]):
            assert before[2] <= after[1], "an overlap"


def test_expiry(locker: ResourceLocker) -> None:
    """A lock with a ttl runs out, unless it is renewed; one without never does."""
    lock = locker.lock("ann", URI, "write", ttl=0.8)
    for _ in range(3):
        time.sleep(0.4)
        locker.renew(lock, 0.8)
    with pytest.raises(LockException):
        locker.lock("bob", URI, "read")
    forever = locker.lock("ann", "another", "write")
    time.sleep(1)
    heir = locker.lock("bob", URI, "write")
    with pytest.raises(ValueError, match="No lock"):
        locker.unlock(lock)
    with pytest.raises(ValueError, match="No lock"):
        locker.renew(lock, 1)
    assert locker.get_locks() == [forever, heir]
    with pytest.raises(ValueError, match="ttl"):
        locker.lock("ann", URI, "read", ttl=0)


def test_expiry_is_known_to_all(database: str, locker_at: Make) -> None:
    """A locker that uses no ttl itself respects that of others."""
    one, two = locker_at(database), locker_at(database)
    one.lock("ann", URI, "write", ttl=2)
    with pytest.raises(LockException):
        two.lock("bob", URI, "write")
    two.lock("bob", URI, "write", wait=20)


def test_somebody_makes_the_table_of_expiries(mysql_database: str, locker_at: Make) -> None:
    """A lock does not fail because another client uses the first `ttl` at this very moment."""
    locker = locker_at(mysql_database)
    locker.unlock(locker.lock("ann", URI, "read", ttl=60))
    done = Event()
    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(_change_the_table, mysql_database, done)
        try:
            for _ in range(40):
                locker._keeps_expiry = False  # it has not looked for the table yet
                locker.unlock(locker.lock("ann", URI, "read"))
        finally:
            done.set()
        changing.result(20)


def _change_the_table(url: str, done: Event) -> None:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        for number in count():
            if done.is_set():
                return
            connection.execute(text(f"ALTER TABLE holdfast_resource_expiry COMMENT='{number}'"))
            time.sleep(0.01)


def test_wait(database: str, locker_at: Make) -> None:
    """Waiting ends with the lock, or with `LockException` when the time is up."""
    one, two = locker_at(database), locker_at(database)
    lock = one.lock("ann", URI, "write")
    with pytest.raises(LockException):
        two.lock("bob", URI, "write", wait=0.2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: two.lock("bob", URI, "write", wait=30))
        time.sleep(0.1)
        one.unlock(lock)
        two.unlock(waiting.result(30))


def test_context_manager(locker: ResourceLocker) -> None:
    """A block unlocks at its end; its own exception goes on its way; a loss is told."""
    with locker.lock("ann", URI, "write") as lock:
        assert locker.get_locks() == [lock]
    assert locker.get_locks() == []
    with pytest.raises(ZeroDivisionError):
        _fail_without_its_lock(locker)
    with pytest.raises(LockException, match="gone"), locker.lock("ann", URI, "write") as lock:
        locker.unlock(lock)


def _fail_without_its_lock(locker: ResourceLocker) -> None:
    with locker.lock("ann", URI, "write") as lock:
        locker.unlock(lock)
        raise ZeroDivisionError
