"""The shape of the command line: variables, help, codes, and what it imports."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import click
import pytest

from holdfast.api.locks import connect
from holdfast.cli import codes
from holdfast.cli.app import COMMANDS, app
from holdfast.cli.params import DURATION
from tests.cli.program import Program
from tests.engines.base import free_port

OF_ALL = ("URL", "REQUEST_TIMEOUT", "STORE_PATIENCE", "VERBOSE")
DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def commands() -> dict[str, click.Command]:
    """All commands, and the group itself as ``."""
    ctx = click.Context(app)
    found = {name: app.get_command(ctx, name) for name in app.list_commands(ctx)}
    return {"": app, **{name: each for name, each in found.items() if each is not None}}


def options(command: click.Command) -> list[click.Option]:
    """Its options but --help and --version."""
    found = [param for param in command.params if isinstance(param, click.Option)]
    return [each for each in found if each.name not in ("help", "version")]


def variable(name: str, option: click.Option) -> str:
    """The environment variable of an option: that of its longest flag."""
    flag = max(option.opts, key=len).lstrip("-").replace("-", "_").upper()
    return f"HOLDFAST_{flag}" if flag in OF_ALL else f"HOLDFAST_{name.upper()}_{flag}"


def test_all_commands_are_there() -> None:
    """The commands of the design."""
    names = {
        "run",
        "lead",
        "once",
        "ls",
        "show",
        "watch",
        "wait",
        "evict",
        "purge",
        "setup",
        "doctor",
        "ui",
    }
    assert set(commands()) == {"", *names} == {"", *COMMANDS}


@pytest.mark.parametrize("name", commands())
def test_every_flag_has_a_variable(name: str) -> None:
    """Every flag has an environment variable, and the help shows it."""
    command = commands()[name]
    top = click.Context(app, auto_envvar_prefix="HOLDFAST")
    ctx = click.Context(command, parent=top, info_name=name) if name else top
    text = " ".join(command.get_help(ctx).split())
    for option in options(command):
        assert option.show_envvar
        assert option.allow_from_autoenv
        assert f"env var: {variable(name, option)}" in text
        assert option.help


def test_flags_can_be_set_by_variables(holdfast: Program) -> None:
    """The variables work, also for switches."""
    with holdfast.locks() as locks:
        locks.acquire("k").release()
    assert holdfast("ls").stdout == ""
    assert "free" in holdfast("ls", HOLDFAST_LS_ALL="1").stdout
    done = holdfast("ls", HOLDFAST_LS_ALL="1", HOLDFAST_LS_JSON="true")
    assert done.stdout.startswith('{"key":"k"')


def test_every_flag_and_code_is_documented() -> None:
    """The page about the command line knows them all."""
    page = DOCS.read_text()
    for name, command in commands().items():
        assert f"holdfast {name}".strip() in page
        for option in options(command):
            assert f"`{max(option.opts, key=len)}" in page, option.opts
    for code in codes.MEANINGS:
        assert f"| `{code}` |" in page


def test_every_listing_has_json() -> None:
    """Whatever lists can do so for programs."""
    for name in ("ls", "show", "watch", "evict", "purge", "doctor"):
        assert any("--json" in option.opts for option in options(commands()[name]))


def test_codes_are_in_the_help(holdfast: Program) -> None:
    """The exit codes can be read where they are needed."""
    text = holdfast("run", "--help").stdout
    for code, meaning in codes.MEANINGS.items():
        assert f"{code}  {meaning}" in text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400), ("500ms", 0.5)],
)
def test_durations(text: str, seconds: float) -> None:
    """Seconds, or a number with a unit."""
    assert DURATION.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1w", "nan", "inf", "1e3", "s", "1 h 2", "٣"])
def test_no_durations(text: str) -> None:
    """Everything else is refused."""
    with pytest.raises(click.BadParameter):
        DURATION.convert(text, None, None)


def test_version(holdfast: Program) -> None:
    """The version is that of the package."""
    import holdfast as package

    assert holdfast("--version").stdout == f"holdfast {package.__version__}\n"


IMPORTS = """
import sys
sys.argv = ["holdfast", *{args!r}]
try:
    {what}
except SystemExit:
    pass
print(sorted({{"click", "rich"}} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("what", "args", "imported"),
    [
        ("import holdfast, holdfast.aio", [], "[]"),
        ("from holdfast.cli import main; main()", ["--help"], "['click']"),
        ("from holdfast.cli import main; main()", ["run", "k", "--", "true"], "['click']"),
    ],
)
def test_imports(holdfast: Program, what: str, args: list[str], imported: str) -> None:
    """The library knows nothing of click, and `run` starts without rich."""
    script = IMPORTS.format(args=args, what=what)
    done = subprocess.run(
        [sys.executable, "-c", script], env=holdfast.env, capture_output=True, text=True
    )
    assert done.stderr.strip() == imported


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_how_long_a_store_may_be_away(holdfast: Program, how: str) -> None:
    """Who waits for a lock gives up after `--store-patience`, also if it was to wait for ever."""
    away = f"redis://127.0.0.1:{free_port()}"
    flags = ["--store-patience", "0"] if how == "flag" else []
    environment = {} if flags else {"HOLDFAST_STORE_PATIENCE": "0"}
    done = holdfast("run", "k", "--url", away, *flags, "--", "true", **environment)
    assert done.returncode == codes.STORE, done.stderr


def test_a_store_may_be_away_for_as_long_as_it_takes(holdfast: Program, tmp_path: Path) -> None:
    """With `--store-patience forever` a command waits until its store is back."""
    url = f"sqlite://{tmp_path}/locks.db"
    connect(url).close()
    writer = sqlite3.connect(tmp_path / "locks.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    flags = ("--request-timeout", "100ms", "--store-patience", "forever")
    started = holdfast.start("run", "k", "--url", url, *flags, "--", "true")
    # The same with a patience of 0 begins later and gives up.
    flags = ("--request-timeout", "100ms", "--store-patience", "0")
    gave_up = holdfast("run", "k", "--url", url, *flags, "--", "true")
    assert gave_up.returncode == codes.STORE, gave_up.stderr
    assert started.process.poll() is None, started.err
    writer.close()
    assert started.code() == codes.OK, started.err


def test_how_long_a_store_may_take_to_answer(holdfast: Program, tmp_path: Path) -> None:
    """Nobody waits for longer than `--request-timeout` where nobody waits for a lock."""
    path = tmp_path / "locks.db"
    with connect(f"sqlite://{path}"):
        writer = sqlite3.connect(path, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        url = f"sqlite://{path}"
        flags = ("--busy", "fail", "--request-timeout", "200ms")
        done = holdfast("run", "k", "--url", url, *flags, "--", "true")
        writer.close()
    assert done.returncode == codes.STORE, done.stderr
    assert " locked for 0." in done.stderr
