"""The drop-in beside clients of the original, on the same tables."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from holdfast.dropin.resource_lock import LockException, ResourceLocker, granting, tables
from holdfast.dropin.resource_lock import locker as locker_module
from tests.dropin.resource_lock.old_client import OldClient

Make = Callable[[str], ResourceLocker]
URI = "mysql://host/homo_sapiens_core"


def test_they_exclude_each_other(locker: ResourceLocker, database: str) -> None:
    """What one has locked the other cannot, in both directions."""
    with OldClient(database) as old:
        for mine, theirs, together in (
            ("read", "read", True),
            ("read", "write", False),
            ("write", "read", False),
            ("write", "write", False),
        ):
            lock = locker.lock("new", URI, mine)
            assert old.lock(URI, theirs) is together
            if together:
                old.unlock()
            locker.unlock(lock)
            assert old.lock(URI, theirs)
            if together:
                locker.unlock(locker.lock("new", URI, mine))
            else:
                with pytest.raises(LockException):
                    locker.lock("new", URI, mine)
            old.unlock()
    assert locker.get_locks() == []


def test_old_client_between_look_and_insert(locker: ResourceLocker, database: str) -> None:
    """An old client that has looked and not yet inserted is waited for, or is refused."""
    with OldClient(database) as old, ThreadPoolExecutor(1) as pool:
        locker.get_client("new")
        assert old.look(URI, "write") == 0
        locking = pool.submit(_try_lock, locker)
        time.sleep(0.3)
        if database.startswith("sqlite"):
            # Nothing can hold it up, but the trigger sees to it that it comes too late.
            assert locking.result(10)
            with pytest.raises(IntegrityError):
                old.insert("write")
            old.let_go()
        else:
            assert not locking.done()
            old.insert("write")
            old.let_go()
            assert not locking.result(20)
    assert len(locker.get_locks()) == 1


def test_new_client_between_look_and_insert(
    locker: ResourceLocker, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old client cannot look and insert while a new one is in between."""
    looked, go_on = Event(), Event()
    real = granting.check_free

    def slow(*args: Any) -> None:
        real(*args)
        looked.set()
        go_on.wait(10)

    monkeypatch.setattr(locker_module, "check_free", slow)
    with OldClient(database) as old, ThreadPoolExecutor(2) as pool:
        old.look(URI, "write")
        old.let_go()
        locking = pool.submit(_try_lock, locker)
        assert looked.wait(10)
        old_locking = pool.submit(_old_lock, old)
        time.sleep(0.3)
        go_on.set()
        assert locking.result(20)
        assert not old_locking.result(20)
    assert len(locker.get_locks()) == 1


def test_neither_fails_for_the_others_sake(
    mysql_database: str, locker_at: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old client that locks the tables while a new one is at work waits for it; they do not
    wait for each other, which the server would end with an error for one of them."""
    locker = locker_at(mysql_database)
    entered, go_on = Event(), Event()
    real = granting.both_exist

    def slow(*args: Any) -> bool:
        entered.set()
        go_on.wait(10)
        return real(*args)

    monkeypatch.setattr(locker_module, "both_exist", slow)
    with OldClient(mysql_database) as old, ThreadPoolExecutor(2) as pool:
        old.look(URI, "write")
        old.let_go()
        locking = pool.submit(_try_lock, locker)
        assert entered.wait(10)
        looking = pool.submit(old.look, URI, "write")
        time.sleep(0.5)
        go_on.set()
        assert locking.result(20)
        assert looking.result(20) == 1
        old.let_go()


def _try_lock(locker: ResourceLocker) -> bool:
    try:
        locker.lock("new", URI, "write")
    except LockException:
        return False
    return True


def _old_lock(old: OldClient) -> bool:
    try:
        return old.lock(URI, "write")
    except IntegrityError:
        old.let_go()
        return False


def test_tables_left_locked(
    mysql_database: str, locker_at: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old client that leaves the tables locked is a `LockException`, not a hang; and we
    leave nothing locked ourselves."""
    monkeypatch.setattr(tables, "LONGEST_TABLE_WAIT_S", 1)
    locker = locker_at(mysql_database)
    mine = locker.lock("new", "mine", "write")
    with OldClient(mysql_database) as old:
        assert old.lock(URI, "read")
        assert old.look(URI, "read") == 0
        another = locker_at(mysql_database)
        calls: list[Callable[[], object]] = [
            lambda: locker.unlock(mine),
            lambda: locker.lock("new", URI, "read"),
            lambda: another.lock("newer", "other", "write", ttl=60),
            another.get_locks,
            lambda: another.get_client("newer"),
        ]
        for call in calls:
            with pytest.raises(LockException, match="original"):
                call()
        old.let_go()
    locker.unlock(mine)


def test_tables_left_locked_for_a_while(
    mysql_database: str, locker_at: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`wait` goes on while they are."""
    monkeypatch.setattr(tables, "LONGEST_TABLE_WAIT_S", 1)
    locker = locker_at(mysql_database)
    with OldClient(mysql_database) as old, ThreadPoolExecutor(1) as pool:
        assert old.look("other", "read") == 0
        locking = pool.submit(locker.lock, "new", URI, "write", wait=60)
        time.sleep(2)
        assert not locking.done()
        old.let_go()
        locker.unlock(locking.result(60))


def test_ids_that_are_used_again(sqlite_database: str, locker_at: Make, tmp_path: Path) -> None:
    """The expiry of a lock that is gone does not touch another lock with the same ID."""
    locker = locker_at(sqlite_database)
    lock = locker.lock("new", URI, "write", ttl=0.1)
    raw = sqlite3.connect(tmp_path / "locks.db", isolation_level=None)
    raw.execute("DELETE FROM resource_lock")
    raw.close()
    with OldClient(sqlite_database) as old:
        assert old.lock(URI, "write")
    (same,) = locker.get_locks()
    assert same.resource_lock_id == lock.resource_lock_id
    time.sleep(0.3)
    with pytest.raises(LockException):
        locker.lock("new", URI, "read")
    with pytest.raises(ValueError, match="No lock"):
        locker.unlock(lock)
    assert locker.get_locks() == [same]
