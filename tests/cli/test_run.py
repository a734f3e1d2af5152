"""`holdfast run`: what the command gets, and what its end means."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from holdfast.cli import codes
from holdfast.cli.app import call
from tests.cli.program import Program, until

PRINT_ENV = (
    "import json, os, sys; "
    "print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('HOLDFAST')}))"
)


def test_exports(holdfast: Program) -> None:
    """The command finds its key, fence, ticket and store in its environment."""
    done = holdfast("run", "nightly", "--", "python3", "-c", PRINT_ENV)
    env = json.loads(done.stdout)
    assert (env["HOLDFAST_KEY"], env["HOLDFAST_URL"]) == ("nightly", holdfast.url)
    assert env["HOLDFAST_TICKET"].startswith("hf1s.")
    assert done.stderr == ""
    with holdfast.locks() as locks, locks.acquire("nightly") as lease:
        assert lease.fence > int(env["HOLDFAST_FENCE"])


def test_relative_url_is_exported_in_full(holdfast: Program) -> None:
    """A command that changes its folder still finds the store."""
    command = ("sh", "-c", "echo $HOLDFAST_URL")
    done = holdfast("--url", "sqlite:a b.db?busy_s=2", "run", "k", "--", *command)
    assert done.stdout.startswith("sqlite:///")
    assert done.stdout.endswith("/a b.db?busy_s=2\n")
    assert (holdfast.folder / "a b.db").exists()


@pytest.mark.parametrize("args", [("--", "-k"), ("--ttl", "5s", "--", "--help")])
def test_a_key_that_begins_with_a_dash(holdfast: Program, args: tuple[str, ...]) -> None:
    """It stands between two double dashes; the command may have some of its own."""
    done = holdfast("run", *args, "--", "sh", "-c", 'echo "$HOLDFAST_KEY" "$@"', "sh", "--", "x")
    assert done.stdout == f"{args[-1]} -- x\n", done.stderr


def test_two_dashes_in_a_command(holdfast: Program) -> None:
    """Where the key is known, they are the command's."""
    assert holdfast("run", "k", "--", "echo", "--", "x").stdout == "-- x\n"
    with holdfast.locks() as locks, locks.acquire("k") as lease:
        done = holdfast("run", "--join", lease.share(), "--", "echo", "--", "x")
        assert done.stdout == "-- x\n", done.stderr
    assert holdfast("run", "--", "echo", "x").returncode == codes.USAGE


@pytest.mark.parametrize("args", [("--url", "", "ls"), ("ls", "--url=")])
def test_an_empty_url_is_no_url(holdfast: Program, args: tuple[str, ...]) -> None:
    """It is the empty variable of somebody who believes to share a store with others."""
    done = holdfast(*args)
    assert (done.returncode, done.stdout) == (codes.USAGE, "")
    assert "--url" in done.stderr


def test_a_store_of_this_process_alone(holdfast: Program) -> None:
    """It keeps nobody out, and `run` says so."""
    done = holdfast("run", "k", "--url", "memory://", "--", "true")
    assert done.returncode == 0
    assert "memory" in done.stderr
    assert "only for this process" in done.stderr
    assert done.stderr.count("\n") == 1


def test_url_in_the_home_is_exported(holdfast: Program) -> None:
    """`~` is the home for the command too, and not a folder of that name."""
    script = "echo $HOLDFAST_URL; cd /; $0 -m holdfast ls --json"
    command = ("sh", "-c", script, sys.executable)
    done = holdfast("--url", "sqlite:~/h.db", "run", "k", "--", *command, HOME=str(holdfast.folder))
    assert done.stdout.startswith('sqlite:///~/h.db\n{"key":"k"'), done.stderr
    assert (holdfast.folder / "h.db").exists()


def test_default_store_is_exported(holdfast: Program) -> None:
    """Without a URL the embedded store is used, and named to the command."""
    done = holdfast("run", "k", "--", "sh", "-c", "echo $HOLDFAST_URL", HOLDFAST_URL="")
    assert done.stdout.endswith("/state/holdfast/locks.db\n")


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)],
)
def test_exit_code_is_the_commands(holdfast: Program, script: str, code: int) -> None:
    """The exit code is that of the command, and 128+n for a signal."""
    assert holdfast("run", "k", "--", "sh", "-c", script).returncode == code


def test_lock_is_free_afterwards(holdfast: Program) -> None:
    """The lock is held while the command runs, and not longer."""
    started = holdfast.start("run", "k", "--owner", "me", "--note", "a=b=c", "--", "sleep", "60")
    until(lambda: holdfast.json("ls"))
    [lock] = holdfast.json("ls")
    assert lock["holders"][0]["owner"] == "me"
    assert lock["holders"][0]["note"] == {"a": "b=c"}
    started.send(signal.SIGTERM)
    assert started.code() == 143
    assert holdfast.json("ls") == []


def test_command_that_is_not_there(holdfast: Program) -> None:
    """Not found and not executable have the codes of shells, without waiting for the lock."""
    plain = holdfast.folder / "plain.txt"
    plain.write_text("no program")
    garbage = holdfast.folder / "garbage"
    garbage.write_bytes(b"\x7fnothing")
    garbage.chmod(0o755)
    with holdfast.locks() as locks, locks.acquire("k"):
        missing = holdfast("run", "k", "--", "no-such-command")
        assert (missing.returncode, missing.stderr.count("\n")) == (codes.NOT_FOUND, 1)
        refused = holdfast("run", "k", "--", str(plain))
        assert refused.returncode == codes.NOT_EXECUTABLE
        assert "chmod +x" in refused.stderr
    assert holdfast("run", "k", "--", str(garbage)).returncode == codes.NOT_EXECUTABLE
    assert holdfast.json("ls") == []


@pytest.mark.parametrize(("busy", "code"), [("skip", codes.OK), ("fail", codes.BUSY)])
def test_busy(holdfast: Program, busy: str, code: int) -> None:
    """A lock that is taken ends it at once, with a code and a word about who has it. To skip is
    what was asked for, and no failure; the notice says so."""
    with holdfast.locks() as locks, locks.acquire("k", owner="the other"):
        started = time.monotonic()
        done = holdfast("run", "k", "--busy", busy, "--", "echo", "ran")
        assert time.monotonic() - started < 5
        assert (done.returncode, done.stdout) == (code, "")
        assert "'k' is held by the other" in done.stderr
        assert ("skipped, with exit code 0" in done.stderr) is (busy == "skip")
        assert done.stderr.count("\n") == 1
        args = ("run", "k", "--busy", busy, "--busy-code", "3", "--", "true")
        assert holdfast(*args).returncode == 3


def test_the_ticket_can_be_left_out(holdfast: Program) -> None:
    """A command that is not trusted with it finds none, not even that of an outer lease."""
    shown = ("--", "sh", "-c", "echo ${HOLDFAST_TICKET:-none} $HOLDFAST_KEY")
    assert holdfast("run", "k", "--no-ticket", *shown, HOLDFAST_TICKET="x").stdout == "none k\n"
    assert holdfast("run", "k", *shown, HOLDFAST_TICKET="x").stdout.split()[0] not in ("none", "x")
    assert holdfast("lead", "k", "--no-ticket", *shown, HOLDFAST_TICKET="x").stdout == "none k\n"
    once = ("once", "k", "--into", f"{holdfast.folder}/out.txt", "--no-ticket")
    assert holdfast(*once, *shown, HOLDFAST_TICKET="x").stdout == "none k\n"


def test_busy_for_cron(holdfast: Program) -> None:
    """A cron job can skip its turn without a word and without an error."""
    with holdfast.locks() as locks, locks.acquire("k"):
        args = ("run", "k", "--busy", "skip", "--quiet")
        done = holdfast(*args, "--", "echo", "ran")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_wait_ends(holdfast: Program) -> None:
    """`--wait` bounds the wait, also as an environment variable."""
    with holdfast.locks() as locks, locks.acquire("k"):
        done = holdfast("run", "k", "--", "echo", "ran", HOLDFAST_RUN_WAIT="200ms")
        assert (done.returncode, done.stdout) == (codes.BUSY, "")
        assert "not free within 0.2 s" in done.stderr


def test_command_line_beats_environment(holdfast: Program) -> None:
    """What is said on the command line counts more than a variable."""
    other = f"sqlite://{holdfast.folder}/other.db"
    assert holdfast("--url", other, "setup").returncode == 0
    done = holdfast("--url", other, "run", "k", "--", "sh", "-c", "echo $HOLDFAST_URL")
    assert done.stdout.strip() == other
    done = holdfast("run", "k", "--url", other, "--", "sh", "-c", "echo $HOLDFAST_URL")
    assert done.stdout.strip() == other


def test_shared_and_counted(holdfast: Program) -> None:
    """Modes and permits are those of the library."""
    with holdfast.locks() as locks:
        with locks.acquire("r", mode="shared"):
            assert holdfast("run", "r", "--mode", "shared", "--", "true").returncode == 0
            assert holdfast("run", "r", "--busy", "fail", "--", "true").returncode == codes.BUSY
        with locks.acquire("c", limit=2):
            assert holdfast("run", "c", "--limit", "2", "--", "true").returncode == 0
            assert holdfast("run", "c", "--limit", "3", "--", "true").returncode == codes.USAGE


def test_disabled_locks_are_announced(holdfast: Program) -> None:
    """`null://` says in one line that nothing is locked."""
    done = holdfast("run", "k", "--url", "null://", "--", "true")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "warning: Holdfast is disabled" in done.stderr


def test_verbose_shows_the_log(holdfast: Program) -> None:
    """`--verbose` shows what the library logs."""
    done = holdfast("-v", "run", "k", "--", "true")
    assert "INFO Acquired lock k (owner: " in done.stderr


BAD = {
    "no command": ("run", "k"),
    "no dashes": ("run", "k", "true"),
    "nothing after the dashes": ("run", "k", "--"),
    "no key": ("run", "--", "true"),
    "two keys": ("run", "a", "b", "--", "true"),
    "empty key": ("run", "", "--", "true"),
    "long key": ("run", "k" * 513, "--", "true"),
    "key that is no text": ("run", "\udcff", "--", "true"),
    "ttl 0": ("run", "k", "--ttl", "0", "--", "true"),
    "ttl below 0": ("run", "k", "--ttl", "-1", "--", "true"),
    "ttl nan": ("run", "k", "--ttl", "nan", "--", "true"),
    "ttl absurd": ("run", "k", "--ttl", "99999d", "--", "true"),
    "ttl infinite": ("run", "k", "--ttl", "9" * 400, "--", "true"),
    "wait in words": ("run", "k", "--wait", "a while", "--", "true"),
    "limit 0": ("run", "k", "--limit", "0", "--", "true"),
    "limit and mode": ("run", "k", "--limit", "2", "--mode", "shared", "--", "true"),
    "note without a name": ("run", "k", "--note", "=x", "--", "true"),
    "unknown option": ("run", "k", "--nope", "--", "true"),
    "unknown command": ("nope",),
    "unknown scheme": ("run", "k", "--url", "gopher://x", "--", "true"),
    "no URL": ("run", "k", "--url", "what", "--", "true"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad input is one clear line and the usage code; nothing runs."""
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite://{tmp_path}/locks.db")
    monkeypatch.setattr("holdfast.cli.app.quiet_library", lambda: None)
    assert call(BAD[name]) == codes.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("holdfast: ")
    assert said.err.count("\n") == 1


def test_bad_input_from_outside(holdfast: Program) -> None:
    """The same as people see it."""
    done = holdfast("run", "k", "--ttl", "soon", "--", "true")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (codes.USAGE, "", 1)


def test_store_trouble(holdfast: Program) -> None:
    """A store that cannot be used has its own code."""
    foreign = holdfast.folder / "foreign.db"
    foreign.write_text("this is not a database, it only has the name of one " * 20)
    done = holdfast("run", "k", "--", "true", HOLDFAST_URL=f"sqlite://{foreign}")
    assert (done.returncode, done.stderr.count("\n")) == (codes.STORE, 1)
    nowhere = f"sqlite://{holdfast.folder}/no/such/folder/locks.db"
    assert holdfast("ls", HOLDFAST_URL=nowhere).returncode == codes.STORE


def test_unwritable_home(holdfast: Program) -> None:
    """An embedded store that cannot be made is store trouble, in one line."""
    (holdfast.folder / "file").write_text("")
    inside_a_file = str(holdfast.folder / "file" / "state")
    done = holdfast("ls", HOLDFAST_URL="", XDG_STATE_HOME=inside_a_file)
    assert (done.returncode, done.stderr.count("\n")) == (codes.STORE, 1), done.stderr


def test_passwords_stay_secret(holdfast: Program) -> None:
    """No password of a URL is shown, neither in an error nor in a report."""
    secret = "sqlite://joe:hunter2@host/x.db?password=hunter2"
    for args in (("run", "k", "--", "true"), ("doctor",), ("setup",), ("-v", "ls")):
        done = holdfast(*args, HOLDFAST_URL=secret)
        assert done.returncode in (codes.USAGE, codes.STORE)
        assert "hunter2" not in done.stdout + done.stderr


def test_ignored_signals_stay_ignored(holdfast: Program, tmp_path: Path) -> None:
    """Under `nohup` neither Holdfast nor the command minds SIGHUP."""
    command = ("sh", "-c", "touch started; kill -HUP $PPID; kill -HUP $$; exit 5")
    started = holdfast.start("run", "k", "--", *command, prefix=("nohup",))
    assert started.code() == 5


def test_closed_standard_files(holdfast: Program) -> None:
    """Started with everything closed, it still runs its command, which finds them open."""
    close = 'exec "$@" <&- >&- 2>&-'
    command = ("sh", "-c", "echo out && echo err >&2 && touch ran")
    started = holdfast.start("run", "k", "--", *command, prefix=("sh", "-c", close, "sh"))
    assert started.code() == 0
    assert (holdfast.folder / "ran").exists()


def test_no_arguments(holdfast: Program) -> None:
    """Without a command there is help, and the code says that nothing was done."""
    done = holdfast()
    assert (done.returncode, done.stdout) == (codes.USAGE, "")
    assert done.stderr.startswith("Usage: holdfast ")
