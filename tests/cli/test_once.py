"""`holdfast once KEY --into PLACE -- COMMAND…`: one run of a command for many callers."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from holdfast.cli import codes
from holdfast.cli.once_place import Output, place_of
from holdfast.errors import MissingDriver
from tests.cli.program import Program, until
from tests.engines.redis import RedisServer
from tests.engines.shared import shared
from tests.helpers import memory_locks


@pytest.fixture(params=["directory", "sqlite", "redis", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each kind of place that keeps an exit code, too."""
    (tmp_path / "bucket").mkdir()
    if request.param == "redis":
        return f"redis://127.0.0.1:{shared(RedisServer).port}/0"
    return {
        "directory": f"{tmp_path}/out/",
        "sqlite": f"sqlite:///{tmp_path}/results.db",
        "bucket": f"file://{tmp_path}/bucket",
    }[request.param]


def test_every_kind_of_place(place: str, tmp_path: Path) -> None:
    """`--into` names it; it gives back what a command has written, byte for byte, and its code."""
    key = f"report:{tmp_path.name}"
    made = Output(3, b"rows \xff\n")
    with memory_locks() as locks, locks.acquire(key) as lease:
        assert place_of(place, None).find(key) is None
        place_of(place, None).publish(key, made, lease)
    found = place_of(place, None).find(key)
    assert found is not None
    assert found.value == made


@pytest.mark.parametrize("name", ["out.txt", "out/"])
def test_the_second_call_gets_the_output_of_the_first(
    holdfast: Program, name: str, tmp_path: Path
) -> None:
    """The command runs once; bytes come out as they went in."""
    script = f"echo begun >> {tmp_path}/begun; printf 'rows \\377\\n'"
    for _ in range(2):
        done = holdfast.start("once", "k", "--into", f"{tmp_path}/{name}", "--", "sh", "-c", script)
        assert done.code() == 0
        assert done.out_bytes == b"rows \xff\n"
    assert (tmp_path / "begun").read_text() == "begun\n"


def test_those_who_wait_get_it_too(holdfast: Program, tmp_path: Path) -> None:
    """Several at once: one runs the command, the others write what it has written."""
    script = f"echo begun >> {tmp_path}/begun; sleep 1; echo $HOLDFAST_KEY"
    arguments = ("once", "k", "--into", f"{tmp_path}/out/", "--", "sh", "-c", script)
    calls = [holdfast.start(*arguments) for _ in range(3)]
    assert [call.code() for call in calls] == [0] * 3
    assert {call.out for call in calls} == {"k\n"}
    assert (tmp_path / "begun").read_text() == "begun\n"


def test_a_command_that_fails_is_run_again(holdfast: Program, tmp_path: Path) -> None:
    """Its caller gets its output and code; the next caller tries anew."""
    into = ("--into", f"{tmp_path}/out/")
    failed = holdfast("once", "k", *into, "--", "sh", "-c", "echo oops; exit 3")
    assert (failed.returncode, failed.stdout) == (3, "oops\n")
    done = holdfast("once", "k", *into, "--", "echo", "well")
    assert (done.returncode, done.stdout) == (0, "well\n")


def test_failures_can_be_kept(holdfast: Program, tmp_path: Path) -> None:
    """Then everybody gets the code, and nobody tries again."""
    arguments = ("once", "k", "--into", f"{tmp_path}/out/", "--keep-failures", "--")
    for script in ("echo oops; exit 3", "echo never"):
        done = holdfast(*arguments, "sh", "-c", script)
        assert (done.returncode, done.stdout) == (3, "oops\n")


def test_a_maker_that_is_killed_is_replaced(holdfast: Program, tmp_path: Path) -> None:
    """After kill -9 the next one runs the command when the ttl is over."""
    script = f"echo begun >> {tmp_path}/begun; exec sleep 60"
    arguments = ("once", "k", "--ttl", "1", "--into", f"{tmp_path}/out/", "--")
    first = holdfast.start(*arguments, "sh", "-c", script)
    until((tmp_path / "begun").exists)
    second = holdfast.start(*arguments, "echo", "second")
    first.send(signal.SIGKILL)
    assert second.code() == 0
    assert second.out == "second\n"


def test_signals_reach_the_command(holdfast: Program, tmp_path: Path) -> None:
    """SIGTERM ends the command, and nothing is published."""
    script = f"touch {tmp_path}/begun; exec sleep 60"
    arguments = ("once", "k", "--into", f"{tmp_path}/out.txt", "--")
    call = holdfast.start(*arguments, "sh", "-c", script)
    until((tmp_path / "begun").exists)
    call.send(signal.SIGTERM)
    assert call.code() == codes.SIGNALLED + signal.SIGTERM
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    ("into", "library", "extra"),
    [
        ("s3://bucket/x", "obstore.store", "blob"),
        ("redis://nowhere/0", "redis", "redis"),
        ("mysql://nowhere/db", "pymysql", "mysql"),
    ],
)
def test_a_place_without_its_library(
    into: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what to install."""
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingDriver, match=re.escape(f"pip install 'holdfast[{extra}]'")):
        place_of(into, None)


def test_a_place_that_nobody_knows(holdfast: Program) -> None:
    """It says what a place can be, and runs nothing."""
    done = holdfast("once", "k", "--into", "gopher://x/y", "--", "echo", "never")
    assert done.returncode == codes.USAGE
    assert "--into is a file" in done.stderr
    assert done.stdout == ""
