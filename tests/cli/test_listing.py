"""`ls`, `show` and `watch`: what is seen of the locks."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from holdfast.api.info import HolderInfo, LockInfo
from holdfast.cli.render import ROWS, age, lock_lines, lock_table
from holdfast.cli.watch import Watching
from holdfast.core.records import Holder, Record, Waiter
from holdfast.errors import Unavailable
from holdfast.stores.registry import open_store
from tests.cli.program import HOLDFAST, PATIENCE_S, Program, until


def test_ls(holdfast: Program) -> None:
    """Held locks under a prefix, as a table and as lines of JSON; free ones on request."""
    with holdfast.locks() as locks:
        locks.acquire("a:gone").release()
        with locks.acquire("a:1", owner="me", note={"why": "x"}), locks.acquire("b:2"):
            [lock] = holdfast.json("ls", "a:")
            assert (lock["key"], lock["holders"][0]["owner"]) == ("a:1", "me")
            assert lock["holders"][0]["note"] == {"why": "x"}
            assert [each["key"] for each in holdfast.json("ls", "--all")] == [
                "a:1",
                "a:gone",
                "b:2",
            ]
            table = holdfast("ls").stdout
            assert "a:1" in table
            assert "b:2" in table
            assert "a:gone" not in table
    assert holdfast("ls").stdout == ""


@pytest.mark.parametrize("width", [80, 100])
def test_ls_on_a_terminal(holdfast: Program, width: int) -> None:
    """Numbers, times and modes are never folded; where there is no room for fences, they go."""
    with holdfast.locks() as locks, locks.acquire("pipeline:customers", owner="o" * 40) as lease:
        out = Console(width=width, file=io.StringIO())
        out.print(lock_table(locks.list(), width))
    text = out.file.getvalue()  # type: ignore[attr-defined]
    times = r"\d\d:\d\d:\d\d, for \d+ s +free in \d+ s"
    assert re.search(rf"exclusive +(\d{{16}} +)?{times}", text)
    assert (str(lease.fence) in text) == (width == 100)
    assert max(map(len, text.splitlines())) <= width


def test_ls_is_not_cut_in_a_pipe(holdfast: Program) -> None:
    """Into a pipe the longest key comes out in one piece."""
    with holdfast.locks() as locks, locks.acquire("k" * 500):
        assert "k" * 500 in holdfast("ls").stdout


def test_ls_streams_many(holdfast: Program) -> None:
    """A listing of more than a page is complete, and a reader may leave early."""
    with holdfast.locks() as locks:
        kept = [locks.acquire(f"key:{number:04}", keep=False) for number in range(1100)]
    assert len(kept) == 1100
    assert len(holdfast.json("ls")) == 1100
    assert "key:1099" in holdfast("ls").stdout
    with subprocess.Popen(
        [*HOLDFAST, "ls", "--json"],
        env=holdfast.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as lister:
        assert lister.stdout is not None
        assert lister.stderr is not None
        assert lister.stdout.readline()
        lister.stdout.close()
        assert (lister.wait(PATIENCE_S), lister.stderr.read()) == (128 + signal.SIGPIPE, b"")


def test_show(holdfast: Program) -> None:
    """Holders and waiters in their order, for programs and for people."""
    with holdfast.locks() as locks, locks.acquire("k", owner="first", note={"a": 1}):
        waiting = holdfast.start("run", "k", "--fair", "--owner", "second", "--", "true")
        until(lambda: locks.show("k").waiters)
        [shown] = holdfast.json("show", "k")
        assert [holder["owner"] for holder in shown["holders"]] == ["first"]
        assert [waiter["owner"] for waiter in shown["waiters"]] == ["second"]
        page = holdfast("show", "k").stdout
        assert "held, 1 waiting" in page
        assert "first" in page
        assert "a=1" in page
        assert "second" in page
        waiting.send(signal.SIGTERM)
        waiting.code()


def test_show_free(holdfast: Program) -> None:
    """A lock that nobody ever held is free."""
    done = holdfast("show", "nothing")
    assert (done.returncode, done.stdout) == (0, "nothing  free\n")


def test_others_cannot_write_to_the_terminal(holdfast: Program) -> None:
    """Control characters and markup of others are shown, not obeyed."""
    with holdfast.locks() as locks, locks.acquire("k\x1b[31m", owner="evil\r\n[bold]\x1b]0;x"):
        for args in (("ls",), ("show", "k\x1b[31m")):
            text = holdfast(*args).stdout
            assert "\x1b" not in text
            assert "\r" not in text
            assert "[bold]" in text
        busy = holdfast("run", "k\x1b[31m", "--busy", "fail", "--", "true").stderr
        assert "\x1b" not in busy
        assert busy.count("\n") == 1


def test_others_cannot_write_to_the_terminal_by_json(holdfast: Program) -> None:
    """The same of JSON, which says the same to a program."""
    name = "\x9b2J\x85\u202e\u200b\u2028\U000e0041\x7f é"
    with holdfast.locks() as locks, locks.acquire(name, owner=name, note={name: name}):
        shown = holdfast("ls", "--json").stdout
        assert shown.rstrip("\n").isprintable()
        assert "é" in shown
        [holder] = json.loads(shown)["holders"]
        assert (holder["key"], holder["owner"], holder["note"]) == (name, name, {name: name})


@pytest.mark.parametrize("at", [253402300799999999, 2**62])
def test_times_that_no_calendar_has(holdfast: Program, at: int) -> None:
    """A record of somebody else's is shown, and can be thrown out, also east of Greenwich."""
    holder = Holder("h", 1, "o", "shared", 10**6, at, at, "b")
    waiter = Waiter("w", "w", "shared", 10**6, at, at, "b")
    with closing(open_store(holdfast.url)) as store:
        store.swap("k", None, Record(1, (holder,), (waiter,)))
    for args in (("ls",), ("show", "k"), ("evict", "k", "--yes")):
        done = holdfast(*args, TZ="JST-9")
        assert done.returncode == 0, done.stderr


def test_no_tokens(holdfast: Program) -> None:
    """No listing shows the token of a lease."""
    with holdfast.locks() as locks, locks.acquire("k") as lease:
        for args in (("ls",), ("show", "k"), ("ls", "--json"), ("show", "k", "--json")):
            assert lease.hold.token not in holdfast(*args).stdout


def test_watch_json(holdfast: Program) -> None:
    """Each change is one line, from the locks held at the start to their end."""
    with holdfast.locks() as locks:
        with locks.acquire("k", owner="first"):
            watching = holdfast.start("watch", "--json", "--interval", "50ms")
            watching.says('"held"')
        watching.says('"freed"')
    watching.send(signal.SIGINT)
    assert watching.code() == 0
    held, freed = map(json.loads, watching.out.splitlines())
    assert (held["change"], held["lock"]["holders"][0]["owner"]) == ("held", "first")
    assert (freed["change"], freed["lock"]["key"]) == ("freed", "k")


def test_watch_lines(holdfast: Program) -> None:
    """Into a pipe a change is a line for people."""
    with holdfast.locks() as locks:
        watching = holdfast.start("watch", "--interval", "50ms")
        with locks.acquire("k", owner="first"):
            watching.says("k: held by first (exclusive, fence ")
            waiting = holdfast.start("run", "k", "--fair", "--", "true")
            watching.says("), 1 waiting")
        watching.says("k: free")
        assert waiting.code() == 0
    assert "waiting by" not in watching.out


def test_renewals_are_no_change() -> None:
    """Two looks at the same holders differ in nothing."""
    watching = Watching()
    [held] = watching.look([LockInfo("k", 1, (), ())])
    assert held.change == "held"
    assert list(watching.look([LockInfo("k", 2, (), ())])) == []
    [change] = watching.look([LockInfo("k", 1, (), (), "cut off")])
    assert change.change == "changed"


def some_locks(number: int) -> Iterator[LockInfo]:
    """So many that are held, each made when it is asked for."""
    at = datetime.now(UTC)
    for i in range(number):
        owner = f"worker-{i}"
        holder = HolderInfo(f"key:{i}", owner, "exclusive", None, i, at, 30, 1, {}, 0, False)
        yield LockInfo(f"key:{i}", i, (holder,), ())


def test_a_look_that_fails_half_way() -> None:
    """What it has not come to is not taken for freed, and is seen the next time."""
    watching, found = Watching(), list(some_locks(4))
    assert len(list(watching.look(found))) == 4

    def failing() -> Iterator[LockInfo]:
        yield from found[:2]
        raise Unavailable

    with pytest.raises(Unavailable):
        list(watching.look(failing()))
    freed = watching.look(found[:3])
    assert [(change.change, change.lock.key) for change in freed] == [("freed", "key:3")]


def test_watching_very_many() -> None:
    """A lock that does not change is remembered in a few hundred bytes."""
    number, watching = 20_000, Watching()
    tracemalloc.start()
    try:
        told = sum(1 for _ in range(3) for _ in watching.look(some_locks(number)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told == number
    assert peak < number * 600


def test_a_list_of_very_many_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are written while others are still to be read, and without tables of rich."""
    monkeypatch.setattr(Table, "add_row", None)
    read, number = 0, 5 * ROWS

    def counted() -> Iterator[LockInfo]:
        nonlocal read
        for lock in some_locks(number):
            read += 1
            yield lock

    lines = lock_lines(counted())
    assert next(lines).startswith("Key ")
    for written, line in enumerate(lines):
        assert f"key:{written} " in line
        assert read <= written + ROWS
    assert read == number


def test_columns_in_a_pipe() -> None:
    """They stand under their names, also beside wide letters; what is wrong has room to say so."""
    at = datetime.now(UTC)
    holder = HolderInfo("k", "\u5bb6" * 9, "exclusive", None, 7, at, 30, 1.5, {}, 0, True)
    locks = [LockInfo("k", 7, (holder,), ()), LockInfo("\x1b[2J", 0, (), (), "cut off" * 9)]
    head, held, fault = lock_lines([*locks])
    assert head.split("  ")[0] == "Key"
    assert "\u5bb6" * 9 + " (handed over, not yet taken)  exclusive  7" in held
    assert cell_len(held[: held.index("exclusive")]) == cell_len(head[: head.index("Mode")])
    assert "\x1b" not in fault
    assert fault.endswith("cut off")


@pytest.mark.parametrize("args", [("ls",), ("ls", "--json"), ("show", "k"), ("doctor",)])
def test_a_reader_that_leaves(holdfast: Program, args: tuple[str, ...]) -> None:
    """Output that nobody reads any more ends every command as SIGPIPE would, without a word."""
    with holdfast.locks() as locks, locks.acquire("k"):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [*HOLDFAST, *args], env=holdfast.env, stdout=writer, stderr=subprocess.PIPE
        )
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_terminal_without_unicode(holdfast: Program) -> None:
    """What an encoding does not have is shown escaped."""
    with holdfast.locks() as locks, locks.acquire("k\u00fc", owner="\U0001f986"):
        for args in (("ls",), ("show", "k\u00fc")):
            done = holdfast(*args, PYTHONIOENCODING="ascii")
            assert done.returncode == 0, done.stderr
            assert "k\\xfc" in done.stdout
            assert "\\U0001f986" in done.stdout


def test_prefix_that_is_no_text(holdfast: Program) -> None:
    """A prefix that no key can have is a usage error."""
    for command in ("ls", "watch", "purge"):
        done = holdfast(command, "\udcff")
        assert (done.returncode, done.stderr.count("\n")) == (64, 1)


def test_ages(holdfast: Program) -> None:
    """Beside each time stands for how long that is; what is left is no end of the job."""
    with holdfast.locks() as locks, locks.acquire("k", ttl=60):
        for page in (holdfast("ls").stdout, holdfast("show", "k").stdout):
            assert re.search(r"\d\d:\d\d:\d\d, for \d+ s ", page), page
            assert "If not renewed" in page
            assert re.search(r"free in (\d+ s|1 min)", page), page


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "59 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_age_in_words(seconds: float, words: str) -> None:
    """One unit is enough."""
    assert age(seconds) == words
