"""The clock that the processes on one SQLite file share."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

import holdfast
from holdfast import CorruptClock, Locks, Misconfigured
from holdfast.core.contract import Swapped
from holdfast.core.records import SECOND, Record
from holdfast.stores.sqlite import SQLiteStore, clock, system, transport
from tests.stores.processes import TAKER


def test_the_time_of_day_does_not_matter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the wall clock does, leases last as long as they should and fences grow."""
    with holdfast.connect(f"sqlite://{path}", ttl=60) as locks:
        lease = locks.acquire("k")
        for jump in (-(10**15), 10**15, 0):
            monkeypatch.setattr("holdfast.runtime.clock.wall", lambda jump=jump: 10**15 + jump)
            with holdfast.connect(f"sqlite://{path}") as other:
                assert other.try_acquire("k") is None
                with other.acquire(f"new{jump}") as new:
                    assert abs(new.fence - lease.fence) < 60 * SECOND
        assert lease.release() is True


def test_after_a_boot(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a boot the clock is set anew, and never behind what the file has seen."""
    with holdfast.connect(f"sqlite://{path}") as locks, locks.acquire("k") as lease:
        fence = lease.fence
    monkeypatch.setattr(clock, "boot_id", lambda: "another boot")
    monkeypatch.setattr("holdfast.runtime.clock.wall", lambda: 0)  # and its battery is empty
    monkeypatch.setattr("holdfast.runtime.clock._CLOCK", time.CLOCK_PROCESS_CPUTIME_ID)
    with holdfast.connect(f"sqlite://{path}") as locks, locks.acquire("k") as lease:
        assert lease.fence > fence


@pytest.mark.parametrize("ahead", [-(10**15), 3600 * SECOND])
def test_where_the_clock_starts_after_a_boot(
    path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """At the time of day, or later if the file has seen a later one."""
    store = SQLiteStore(path)
    swapped = store.swap("k", None, Record(1))
    assert isinstance(swapped, Swapped)
    store.close()
    monkeypatch.setattr(clock, "boot_id", lambda: "another boot")
    wall = swapped.version + ahead
    monkeypatch.setattr("holdfast.runtime.clock.wall", lambda: wall)
    store = SQLiteStore(path)
    now = store.load("k").now
    assert now is not None
    assert max(wall, swapped.version) < now.earliest < max(wall, swapped.version) + 60 * SECOND
    store.close()


def test_the_first_to_open_the_file_sets_the_clock(
    path: Path, locks: Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds that somebody was faster takes that one's."""
    connection = transport.Connection(path, 1)
    known = clock.set_clock(connection, "another boot", 0)
    monkeypatch.setattr("holdfast.runtime.clock.wall", lambda: 10**17)
    assert clock.set_clock(connection, "another boot", 0) == known
    connection.close()


def test_without_a_boot_id(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is none, the time of day must do."""
    monkeypatch.setattr(clock, "boot_id", lambda: None)
    with holdfast.connect(f"sqlite://{path}") as locks, locks.acquire("k") as lease:
        assert abs(lease.fence - time.time_ns() // 1000) < 60 * SECOND


# --- what the file says of it -----------------------------------------------------------------


def write_clock(path: Path, value: object) -> None:
    """Somebody else writes this into the file."""
    execute(path, "UPDATE holdfast_meta SET value = ? WHERE name = 'clock'", value)


def execute(path: Path, sql: str, *values: object) -> None:
    """Somebody else works on the file."""
    connection = sqlite3.connect(path)
    connection.execute(sql, values)
    connection.commit()
    connection.close()


DAMAGED = [
    "", "no JSON", "{", "[]", "{}", "null", "7", '{"boot": 1, "offset": 1}', '{"boot": "BOOT"}',
    '{"boot": "BOOT", "offset": null}', '{"boot": "BOOT", "offset": "1"}',
    '{"boot": "BOOT", "offset": 1.5}', '{"boot": "BOOT", "offset": 1e400}',
    '{"boot": "BOOT", "offset": 9223372036854775807}', '{"boot": "BOOT", "offset": -1000000000000}',
    '{"boot": "BOOT", "offset": 1, "machine": "x"}', "[" * 100_000, b"\xff\xfe",
]  # fmt: skip


@pytest.mark.parametrize("value", DAMAGED, ids=lambda value: repr(value)[:40])
def test_a_damaged_clock(path: Path, locks: Locks, value: str | bytes) -> None:
    """It is told as such, and what to do; and that helps."""
    with locks.acquire("k") as lease:
        fence = lease.fence
    locks.close()
    if isinstance(value, str):
        value = value.replace("BOOT", clock.boot_id() or "")
    write_clock(path, value)
    with pytest.raises(CorruptClock, match=r"damaged.*DELETE FROM holdfast_meta"):
        holdfast.connect(f"sqlite://{path}")
    execute(path, "DELETE FROM holdfast_meta")
    with holdfast.connect(f"sqlite://{path}") as anew, anew.acquire("k") as lease:
        assert lease.fence > fence


def test_a_clock_that_is_no_text(path: Path, locks: Locks) -> None:
    """SQLite lets anything pass for text."""
    execute(path, "UPDATE holdfast_meta SET value = CAST(x'ff7b' AS TEXT)")
    with pytest.raises(CorruptClock, match="damaged"):
        holdfast.connect(f"sqlite://{path}")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which boot it is")
def test_others_know_the_boot_and_we_do_not(
    path: Path, locks: Locks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their clock is not the time of day: who can only go by that is refused."""
    monkeypatch.setattr(system, "BOOT_ID", tmp_path / "no such file")
    with pytest.raises(Misconfigured, match="/proc"):
        holdfast.connect(f"sqlite://{path}")


# --- other time namespaces --------------------------------------------------------------------

PROBE = """
import sys, holdfast
try:
    with holdfast.connect(sys.argv[1]) as locks:
        lease = locks.try_acquire("k", ttl=60)
        print("busy" if lease is None else f"held {lease.fence}")
except holdfast.HoldfastError as error:
    print(type(error).__name__, error)
"""
# A client that has leases has threads, too, and then the kernel does not let it in. So this is
# about one that has none yet, and about a store by itself.
ENTERS = """
import ctypes, os, sys, holdfast
from holdfast.core.records import Record
from holdfast.stores.sqlite import SQLiteStore
locks, store = holdfast.connect(f"sqlite://{sys.argv[1]}"), SQLiteStore(sys.argv[1])
version = store.swap("mine", None, Record(1)).version
there = os.open(f"/proc/{sys.argv[2]}/ns/time", os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)
if libc.setns(there, 0x80):
    sys.exit(f"setns: {os.strerror(ctypes.get_errno())}")
for call in (
    lambda: store.swap("mine", version, Record(2)),
    lambda: store.load("k"),
    lambda: store.scan("", None, 10),
    lambda: locks.try_acquire("k"),
):
    try:
        print("done", call())
    except holdfast.HoldfastError as error:
        print(type(error).__name__, error)
"""
MAKES_ONE_FOR_ITS_CHILDREN = (
    """
import ctypes, sys
if ctypes.CDLL(None).unshare(0x80):
    sys.exit("unshare failed")
with open("/proc/self/timens_offsets", "w") as offsets:
    offsets.write("boottime 5000 0")
"""
    + PROBE
)


@cache
def unshare() -> tuple[str, ...]:
    """The command that runs another one in a time namespace of its own, if any does."""
    for ways in ((), ("--user", "--map-root-user")):
        command = ("unshare", *ways, "--time", "--fork")
        try:
            subprocess.run([*command, "--boottime", "1", "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return command
    return ()


@pytest.fixture
def namespaces() -> None:
    """Time namespaces. A kernel without them is a skip; one that has them must let us."""
    if not Path(system.TIME_NAMESPACE).exists():
        pytest.skip("this kernel has no time namespaces")
    if not unshare():
        message = (
            "no time namespace can be made here: it takes unshare, and root or user namespaces"
        )
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


def seconds_since_boot() -> int:
    """How long this machine has been up."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME))


def shifts() -> list[int]:
    """A boot clock far ahead, and one as far behind as it goes."""
    return [100_000, -(seconds_since_boot() // 2)]


def run(*words: str, ahead: int = 0) -> str:
    """What a Python program says, with a boot clock that is ahead by so many seconds."""
    inside = [*unshare(), "--boottime", str(ahead)] if ahead else []
    ran = subprocess.run(
        [*inside, sys.executable, "-c", *words],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@contextmanager
def started(*words: str, ahead: int) -> Iterator[subprocess.Popen[str]]:
    """The same for a program that goes on."""
    command = [*unshare(), "--kill-child", "--boottime", str(ahead), sys.executable, *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.usefixtures("namespaces")
def test_another_boot_clock_is_the_same_time(path: Path, locks: Locks) -> None:
    """Who has a boot clock of its own sees who holds a lock, and takes it afterwards."""
    for ahead in shifts():
        with locks.acquire("k", ttl=60) as lease:
            assert run(PROBE, f"sqlite://{path}", ahead=ahead) == "busy\n"
        said, _, fence = run(PROBE, f"sqlite://{path}", ahead=ahead).partition(" ")
        assert said == "held"
        assert lease.fence < int(fence) < lease.fence + 60 * SECOND


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("first", [True, False], ids=["sets the clock", "finds it"])
def test_a_holder_with_a_boot_clock_of_its_own(path: Path, first: bool) -> None:
    """Others see it, whoever has set the file's clock."""
    if not first:
        holdfast.connect(f"sqlite://{path}").close()
    for ahead in shifts():
        with started(TAKER, "hold", f"sqlite://{path}", f"k{ahead}", "60", ahead=ahead) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline().startswith("held")
            with holdfast.connect(f"sqlite://{path}") as locks:
                assert locks.try_acquire(f"k{ahead}") is None


@pytest.mark.usefixtures("namespaces")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root enters a namespace")
def test_a_client_that_is_moved_to_another_boot_clock(path: Path, locks: Locks) -> None:
    """It is told at its next call: what it knows of the time is no longer true."""
    with locks.acquire("k", ttl=60), started("-c", "print(flush=True); input()", ahead=9999) as one:
        assert one.stdout is not None
        one.stdout.readline()
        children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
        said = run(ENTERS, str(path), children[0]).splitlines()
    assert len(said) == 4
    for line in said:
        assert line.startswith("Misconfigured")
        assert "connect again" in line


@pytest.mark.usefixtures("namespaces")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a namespace by itself")
def test_a_process_that_has_made_a_namespace_for_its_children(path: Path, locks: Locks) -> None:
    """What the kernel tells is theirs, not its own. It is refused where its own is not known."""
    with locks.acquire("k", ttl=60):
        assert run(MAKES_ONE_FOR_ITS_CHILDREN, f"sqlite://{path}") == "busy\n"
        said = run(MAKES_ONE_FOR_ITS_CHILDREN, f"sqlite://{path}", ahead=100_000)
    assert said.startswith("Misconfigured")
    assert "time namespace of its own" in said


@pytest.mark.usefixtures("namespaces")
def test_a_clock_that_an_earlier_release_has_set(path: Path, locks: Locks) -> None:
    """It was set by one boot clock or the other: only where there is just one, it can be used."""
    with locks.acquire("k", ttl=60):
        value = f'{{"boot": "{clock.boot_id()}", "offset": 1700000000000000}}'
        write_clock(path, value)
        said = run(PROBE, f"sqlite://{path}", ahead=100_000)
    assert said.startswith("Misconfigured")
    assert "DELETE FROM holdfast_meta" in said
    assert run(PROBE, f"sqlite://{path}").startswith("held")
