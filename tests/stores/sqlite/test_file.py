"""The SQLite store in one process: its file, its troubles and its clock."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast import (
    BadOption,
    BadURL,
    ForeignStore,
    LeaseLost,
    Locks,
    Misconfigured,
    OutcomeUnknown,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)
from holdfast.core.commands import FREED, Decision
from holdfast.core.contract import Conflict, Swapped
from holdfast.core.effects import Swap
from holdfast.core.records import SECOND, Record
from holdfast.stores.registry import open_store
from holdfast.stores.sqlite import SQLiteStore, protocol, setup, transport
from holdfast.stores.sqlite.errors import error_for
from tests.helpers import is_open

# --- the file ---------------------------------------------------------------------------------


def test_writes_that_are_ignored_in_silence(path: Path, locks: Locks) -> None:
    """A trigger may do that here, a policy in PostgreSQL: it is told, and not tried without end."""
    locks.acquire("k").release()
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TRIGGER ignore BEFORE UPDATE ON holdfast_locks BEGIN SELECT RAISE(IGNORE); END"
    )
    connection.close()
    with pytest.raises(Unavailable, match="although it has not changed"):
        locks.try_acquire("k")


@pytest.mark.parametrize("after", range(1, 4))
def test_somebody_else_makes_the_file_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Whoever opens a new file may be overtaken between any two looks at whose it is."""
    run, looks = transport.Connection.run, 0

    def run_and_be_overtaken(connection: Any, *args: Any, **options: Any) -> Any:
        nonlocal looks
        cursor = run(connection, *args, **options)
        if not args[0].startswith(("PRAGMA application_id", "PRAGMA user_version", "SELECT count")):
            return cursor
        looks += 1
        if looks != after:
            return cursor
        row = cursor.fetchone()
        SQLiteStore(path).close()
        return SimpleNamespace(fetchone=lambda: row)

    monkeypatch.setattr(transport.Connection, "run", run_and_be_overtaken)
    with holdfast.connect(f"sqlite://{path}") as locks, locks.acquire("k") as lease:
        assert lease.held
    assert looks > after


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="tells what is open on Linux only")
@pytest.mark.parametrize("let_go", ["pause", "close"])
@pytest.mark.parametrize("asked", [None, "SELECT * FROM holdfast_meta", "PRAGMA data_version"])
def test_a_connection_lets_go_of_the_file(path: Path, let_go: str, asked: str | None) -> None:
    """Also with an answer that nobody has read: SQLite keeps the file open for that one, and a
    child that is forked then trusts locks that are not its own."""
    SQLiteStore(path).close()
    connection = transport.Connection(path, 5.0)
    if asked is not None:
        connection.run(asked)
    assert is_open(path)
    getattr(connection, let_go)()
    assert not is_open(path)


def test_url_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute, with four slashes, in the home folder, relative, and with odd characters."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    forms = {
        f"sqlite://{tmp_path}/a.db": tmp_path / "a.db",
        f"sqlite:///{tmp_path}/a.db": tmp_path / "a.db",
        "sqlite:///~/h.db": tmp_path / "home" / "h.db",
        "sqlite:r.db": tmp_path / "r.db",
        f"sqlite://{tmp_path}/with%20space%3F.db": tmp_path / "with space?.db",
        f"sqlite://{tmp_path}/b.db?busy_s=0.5": tmp_path / "b.db",
    }
    for url, expected in forms.items():
        store = open_store(url)
        assert isinstance(store, SQLiteStore)
        assert store.path == expected
        assert expected.exists()
        store.close()


@pytest.mark.parametrize("busy", ["0", "-1", "nan", "x"])
def test_bad_busy(path: Path, busy: str) -> None:
    """How long to wait for others is a number above 0."""
    with pytest.raises(BadOption, match="busy_s"):
        holdfast.connect(f"sqlite://{path}?busy_s={busy}")


def test_no_file_in_memory() -> None:
    """SQLite's own memory databases are not shared, and so no store."""
    with pytest.raises(BadURL, match="memory://"):
        holdfast.connect("sqlite:///:memory:")


def test_our_file(path: Path, locks: Locks) -> None:
    """The file says whose it is, and is in write-ahead mode."""
    with locks.acquire("k"):
        other = sqlite3.connect(path)
        assert other.execute("PRAGMA application_id").fetchone() == (setup.APPLICATION_ID,)
        assert other.execute("PRAGMA user_version").fetchone() == (setup.SCHEMA,)
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        other.close()


@pytest.mark.parametrize("content", [b"just some text\n" * 99, b"x", b"\0" * 20])
def test_a_file_that_is_no_database(path: Path, content: bytes) -> None:
    """It is left alone, byte by byte."""
    path.write_bytes(content)
    with pytest.raises(ForeignStore, match="left alone"):
        holdfast.connect(f"sqlite://{path}")
    assert path.read_bytes() == content


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="tells what is open on Linux only")
def test_a_file_that_is_no_database_is_let_go(path: Path) -> None:
    """It is not open any more when the error comes, whoever keeps that."""
    path.write_bytes(b"just some text\n" * 99)
    with pytest.raises(ForeignStore) as kept:
        holdfast.connect(f"sqlite://{path}")
    assert not is_open(path)
    assert kept.value.__traceback__ is not None


def test_somebody_elses_database(path: Path) -> None:
    """It is left alone as well, and the message says what to do."""
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(ForeignStore, match=r"not made by Holdfast.*another path"):
        holdfast.connect(f"sqlite://{path}")
    assert path.read_bytes() == before


def test_a_newer_schema(path: Path, locks: Locks) -> None:
    """A file of a later release asks for that release."""
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA user_version = {setup.SCHEMA + 1}")
    other.close()
    with pytest.raises(Misconfigured, match=r"newer schema.*upgrade"):
        holdfast.connect(f"sqlite://{path}")


def test_a_missing_folder(tmp_path: Path) -> None:
    """The folder must exist."""
    with pytest.raises(Misconfigured, match="its folder must exist"):
        holdfast.connect(f"sqlite://{tmp_path}/no/such/locks.db")


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    """A folder is no file."""
    with pytest.raises(Misconfigured, match="must not be a folder"):
        holdfast.connect(f"sqlite://{tmp_path}")


READ_ONLY = """
import os, sys, urllib.parse, holdfast, holdfast.stores.sqlite
path = sys.argv[1]
holdfast.connect("memory://").acquire("k").release()
if os.geteuid() == 0:  # from here on, this user cannot even read root's Python
    os.setgid(65534); os.setuid(65534)
try:
    with holdfast.connect(f"sqlite://{path}") as locks:
        locks.acquire("k", timeout=5)
except holdfast.HoldfastError as error:
    print(type(error).__name__, error)
"""


def let_others_in(inner: Path) -> None:
    """Another user may pass through the folders down to this one."""
    for folder in (inner, *inner.parents):
        if folder.owner() == "root" or folder.stat().st_uid == os.geteuid():
            if folder == Path("/tmp") or folder == Path("/"):
                break
            folder.chmod(0o755)


@pytest.mark.parametrize("what", ["file", "folder", "both"])
def test_no_right_to_write(path: Path, locks: Locks, what: str) -> None:
    """Who may read but not write is told so, and what to check."""
    with locks.acquire("k"):
        pass
    locks.close()
    let_others_in(path.parent)
    path.chmod(0o444 if what != "folder" else 0o666)
    path.parent.chmod(0o555 if what != "file" else 0o777)
    try:
        said = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(path)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        path.parent.chmod(0o755)
    kind, _, message = said.stdout.partition(" ")
    assert kind in {"StoreReadOnly", "Misconfigured"}, said.stderr
    assert "yours to write" in message or "owner and permissions" in message


RIGHTS_COME_LATER = """
import os, sys, urllib.parse, holdfast, holdfast.stores.sqlite
path = sys.argv[1]
holdfast.connect("memory://").acquire("k").release()
if os.geteuid() == 0:  # from here on, this user cannot even read root's Python
    os.setgid(65534); os.setuid(65534)
with holdfast.connect(f"sqlite://{path}") as locks, holdfast.connect(f"sqlite://{path}") as other:
    try:
        locks.acquire("k", timeout=5)
    except holdfast.StoreReadOnly:
        print("read-only", flush=True)
    sys.stdin.readline()
    with locks.acquire("k", timeout=5):
        print("acquired", flush=True)
"""


def test_the_right_to_write_comes_later(path: Path, locks: Locks) -> None:
    """Who was refused can write as soon as the file's permissions were put right."""
    with locks.acquire("k"):
        pass
    locks.close()
    let_others_in(path.parent)
    path.chmod(0o444)
    path.parent.chmod(0o777)
    with subprocess.Popen(
        [sys.executable, "-c", RIGHTS_COME_LATER, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "read-only\n"
        for file in path.parent.glob(f"{path.name}*"):
            file.chmod(0o666)
        assert child.communicate("go on\n", timeout=60)[0] == "acquired\n"


def test_a_file_that_becomes_read_only(path: Path, locks: Locks) -> None:
    """A store that turns read-only refuses at once; it does not wait."""
    with locks.acquire("k"):
        store: SQLiteStore = locks._client.store  # type: ignore[assignment]
        store._connection.run("PRAGMA query_only = 1")
        with pytest.raises(StoreReadOnly, match="owner and permissions"):
            locks.acquire("other")
        store._connection.run("PRAGMA query_only = 0")


def take_many(locks: Locks, number: int) -> None:
    """Take so many locks with large notes."""
    kept = [locks.acquire(f"k{i}", note={"x": "y" * 3000}, timeout=0) for i in range(number)]
    assert all(lease.held for lease in kept)


def test_a_full_disk(path: Path, locks: Locks) -> None:
    """A file that cannot grow says so; what is held can still be renewed and released, and
    with room again all is well."""
    note = {"x": "y" * 3000}
    with locks.acquire("held") as lease:
        store: SQLiteStore = locks._client.store  # type: ignore[assignment]
        (pages,) = store._connection.run("PRAGMA page_count").fetchone()
        store._connection.run(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreFull, match="Free some space"):
            take_many(locks, 50)
        lease.renew()
        store._connection.run("PRAGMA max_page_count = 1000000")
        with locks.acquire("again", note=note, timeout=0):
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """The same on a file system without a byte left."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mount.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        with holdfast.connect(f"sqlite://{disk}/locks.db", store_patience=0.2) as locks:
            with locks.acquire("before"):
                pass
            _fill(disk / "filler")
            with pytest.raises((StoreFull, Unavailable, holdfast.OutcomeUnknown)):
                take_many(locks, 2000)
            (disk / "filler").unlink()
            with locks.acquire("after", timeout=10):
                pass
        # The last client has removed the log, and there is no room for a new one.
        _fill(disk / "filler")
        with pytest.raises(holdfast.HoldfastError, match="disk is full"):
            holdfast.connect(f"sqlite://{disk}/locks.db", store_patience=0.2).acquire("k")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError as full:
            assert full.errno == errno.ENOSPC  # noqa: PT017


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_deleted(path: Path, locks: Locks, replaced: bool) -> None:
    """Who goes on with a deleted file would be alone with its locks: it is told, and a lease
    that cannot be renewed any more is lost."""
    lease = locks.acquire("k", ttl=1)
    for name in path.parent.glob("locks.db*"):
        name.unlink()
    if replaced:
        holdfast.connect(f"sqlite://{path}").close()
    time.sleep(0.15)
    with pytest.raises(Misconfigured, match=r"deleted or replaced.*connect again"):
        locks.acquire("other")
    assert lease.lost.wait(10)
    with pytest.raises(LeaseLost):
        lease.check()
    with holdfast.connect(f"sqlite://{path}") as anew, anew.acquire("k", timeout=0):
        pass


def test_a_backup_of_the_file_is_another_world(path: Path, locks: Locks, tmp_path: Path) -> None:
    """A copy has locks of its own, whose fences go on growing."""
    with locks.acquire("k") as lease:
        fence = lease.fence
    locks.close()
    shutil.copy(path, tmp_path / "copy.db")
    with holdfast.connect(f"sqlite://{tmp_path}/copy.db") as copy, copy.acquire("k") as again:
        assert again.fence > fence


# --- others who write -------------------------------------------------------------------------


@pytest.fixture
def writer(path: Path, locks: Locks) -> Iterator[sqlite3.Connection]:
    """Somebody in the middle of a long transaction."""
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    yield other
    other.close()


def test_a_busy_file(path: Path, writer: sqlite3.Connection) -> None:
    """A writer who does not end is waited for, but not for ever."""
    with holdfast.connect(f"sqlite://{path}?busy_s=0.2") as locks:
        started = time.monotonic()
        with pytest.raises(Unavailable, match=r"Others kept .* locked for 0\.2 s"):
            locks.acquire("k", timeout=0)
        assert 0.2 <= time.monotonic() - started < 10
        writer.execute("ROLLBACK")
        with locks.acquire("k", timeout=0):
            pass


def test_a_batch_meets_a_busy_file(path: Path, writer: sqlite3.Connection) -> None:
    """All of it fails alike, and each has an outcome."""
    store = SQLiteStore(path, busy_s=0.1)
    outcomes = store.swap_many([Swap(key, None, Record(1)) for key in "abc"])
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3
    writer.execute("ROLLBACK")
    outcomes = store.swap_many([Swap(key, None, Record(1)) for key in "abc"])
    assert [type(outcome) for outcome in outcomes] == [Swapped] * 3
    store.close()


def test_a_busy_file_is_ridden_out(path: Path, writer: sqlite3.Connection) -> None:
    """A wait goes on until the writer is done."""
    with holdfast.connect(f"sqlite://{path}?busy_s=0.1") as locks:
        timer = threading.Timer(0.6, writer.execute, ("ROLLBACK",))
        timer.start()
        with locks.acquire("k", timeout=30) as lease:
            assert lease.held
        timer.join()


def test_busy_errors_of_every_kind() -> None:
    """What SQLite may say when others are in the way is never called a misconfiguration."""
    for code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, 261, 517):
        exc = sqlite3.OperationalError("x")
        exc.sqlite_errorcode = code
        assert isinstance(error_for(exc, Path("/x"), writing=True), Unavailable)


def test_a_disk_that_fails() -> None:
    """Nobody knows what became of a write then; a read may be tried again."""
    exc = sqlite3.OperationalError("disk I/O error")
    exc.sqlite_errorcode = sqlite3.SQLITE_IOERR | 3 << 8
    assert isinstance(error_for(exc, Path("/x"), writing=True), OutcomeUnknown)
    assert isinstance(error_for(exc, Path("/x"), writing=False), Unavailable)


def test_a_batch_is_written_whole_or_not_at_all(path: Path) -> None:
    """If one of many swaps fails, all are reported as failed, and none was done."""
    store = SQLiteStore(path)
    versions = [store.swap(key, None, Record(1)).version for key in "ab"]  # type: ignore[union-attr]
    other = sqlite3.connect(path)
    other.execute(
        "CREATE TRIGGER no BEFORE UPDATE ON holdfast_locks WHEN old.key = 'b' "
        "BEGIN SELECT raise(ABORT, 'not this one'); END"
    )
    other.close()
    swaps = [Swap(key, version, Record(2)) for key, version in zip("ab", versions, strict=True)]
    assert [type(outcome) for outcome in store.swap_many(swaps)] == [Misconfigured, Misconfigured]
    assert [store.load(key).record for key in "ab"] == [Record(1), Record(1)]
    store.close()


@pytest.mark.parametrize("trouble", [ZeroDivisionError, KeyboardInterrupt])
def test_a_transaction_that_fails_keeps_nobody_out(
    path: Path, locks: Locks, trouble: type[BaseException]
) -> None:
    """It is rolled back at once: as long as it is open, nobody else can write."""
    connection = transport.Connection(path, 1)

    def fail() -> None:
        with connection.transaction():
            connection.run(protocol.SQL["set_meta"], ("half", "done"), writing=True)
            raise trouble

    with pytest.raises(trouble):
        fail()
    with locks.acquire("k", timeout=0):
        assert connection.run(protocol.SQL["get_meta"], ("half",)).fetchone() is None
    connection.close()


def test_a_commit_that_the_disk_did_not_confirm(path: Path, locks: Locks) -> None:
    """Nobody knows whether it was done."""
    connection = transport.Connection(path, 1)

    class Failing:
        def __init__(self, cursor: sqlite3.Cursor) -> None:
            self._cursor = cursor

        def execute(self, sql: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
            if sql == "COMMIT":
                exc = sqlite3.OperationalError("disk I/O error")
                exc.sqlite_errorcode = sqlite3.SQLITE_IOERR
                raise exc
            return self._cursor.execute(sql, values)

        def close(self) -> None:
            self._cursor.close()

    connection._cursor = Failing(connection._cursor)  # type: ignore[assignment]
    with pytest.raises(OutcomeUnknown), connection.transaction():
        pass
    connection.close()


def test_a_file_that_was_deleted_shows_nothing(path: Path) -> None:
    """What is left of it is a world of its own: nobody may learn from it that a lock is free."""
    store = SQLiteStore(path)
    path.unlink()
    with pytest.raises(Misconfigured, match="deleted"):
        store.load("k")
    with pytest.raises(Misconfigured, match="deleted"):
        store.scan("", None, 10)
    store.close()


def test_a_version_is_never_given_twice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the clock stands still or goes back between two writes."""
    store = SQLiteStore(path)
    versions: list[Any] = [None]
    for now in (1000, 1000, 1000, 900, 2000):
        monkeypatch.setattr(store._clock, "now", lambda now=now: now)
        swapped = store.swap("k", versions[-1], Record(1))
        assert isinstance(swapped, Swapped)
        versions.append(swapped.version)
        for stale in versions[:-1]:
            assert isinstance(store.swap("k", stale, Record(2)), Conflict)
    assert versions[1:] == sorted(set(versions[1:]))
    store.close()


def test_a_file_that_was_replaced_during_a_fork(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is opened again afterwards, and that may be another one: nothing is written to it."""
    monkeypatch.setattr("holdfast.stores.sqlite.store.FILE_CHECKED_FOR", 3600 * SECOND)
    store = SQLiteStore(path)
    store.swap("k", None, Record(1))
    SQLiteStore(tmp_path / "other.db").close()
    store.pause()
    (tmp_path / "other.db").rename(path)
    store.resume()
    with pytest.raises(Misconfigured, match="replaced"):
        store.swap("new", None, Record(1))
    store.close()


def test_threads_share_a_client(locks: Locks) -> None:
    """Many threads on one client lose no increment."""
    number = [0]

    def work() -> None:
        for _ in range(40):
            with locks.acquire("k", timeout=60):
                read = number[0]
                time.sleep(0)
                number[0] = read + 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert number == [320]


def test_what_is_no_text(path: Path, locks: Locks) -> None:
    """A record that is none is told as such; a key that nobody can name is passed over."""
    locks.acquire("a", keep=False)
    other = sqlite3.connect(path)
    other.execute("UPDATE holdfast_locks SET record = CAST(x'7bff' AS TEXT)")
    for key in ("x'ff'", "x'61ff'", "x'61fffe'"):
        other.execute(f"INSERT INTO holdfast_locks VALUES (CAST({key} AS TEXT), 1, 1, '{{}}')")
    other.commit()
    other.close()
    with locks.acquire("\U0010ffff", keep=False):
        assert [lock.key for lock in locks.list()] == ["a", "\U0010ffff"]
    with pytest.raises(holdfast.CorruptRecord):
        locks.try_acquire("a")
    store, pages, cursor = SQLiteStore(path), 0, None
    while pages == 0 or cursor is not None:
        page = store.scan("", cursor, 1)
        pages, cursor = pages + 1, page.cursor
    assert 5 <= pages <= 6
    store.close()


def test_closing_is_final(path: Path) -> None:
    """A closed store does not open itself again."""
    store = SQLiteStore(path)
    store.close()
    with pytest.raises(Unavailable, match="closed"):
        store.load("k")


def test_a_file_that_was_closed_meanwhile_says_so(path: Path) -> None:
    """Whatever was about to be written in a transaction is surely not done."""
    store = SQLiteStore(path)
    store.close()
    with pytest.raises(Unavailable, match="closed meanwhile"):
        store.amend("k", lambda entry: Decision(FREED, Record(1)))
    [trouble] = store.swap_many([Swap("k", None, Record(1))])
    assert isinstance(trouble, Unavailable)
