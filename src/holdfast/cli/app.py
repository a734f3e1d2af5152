"""The `holdfast` command: a group of commands, each imported when it is used."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from holdfast import __version__
from holdfast.cli import codes
from holdfast.cli.params import shared
from holdfast.cli.session import Session, quiet_library, show_log, tell
from holdfast.errors import HoldfastError

COMMANDS: dict[str, str] = {
    "run": "holdfast.cli.run:run",
    "lead": "holdfast.cli.lead:lead",
    "once": "holdfast.cli.once:once",
    "ls": "holdfast.cli.listing:ls",
    "show": "holdfast.cli.listing:show",
    "watch": "holdfast.cli.watch:watch",
    "wait": "holdfast.cli.wait:wait",
    "evict": "holdfast.cli.operator:evict",
    "purge": "holdfast.cli.operator:purge",
    "setup": "holdfast.cli.operator:setup",
    "doctor": "holdfast.cli.doctor:doctor",
    "ui": "holdfast.cli.ui:ui",
}


class ReaderLeft(Exception):
    """Nobody reads our output any more."""


class LazyGroup(click.Group):
    """Imports a command when it is used."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as exc:
            raise ReaderLeft from exc  # click would make a plain failure of it

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


@click.group(
    cls=LazyGroup,
    epilog=codes.table(),
    invoke_without_command=True,
    context_settings={
        "auto_envvar_prefix": "HOLDFAST",
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 100,
    },
)
@click.version_option(__version__, "--version", message="%(prog)s %(version)s")
@shared
@click.pass_context
def app(ctx: click.Context) -> int:
    """Distributed locks: run a command while holding a lock, and see who holds which.

    \b
      holdfast run nightly -- ./backup.sh
      holdfast ls
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        return codes.USAGE
    return codes.OK


def call(args: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code."""
    session = Session()
    _open_standard_files()
    _show_what_cannot_be_encoded()
    quiet_library()
    try:
        result = app.main(args, prog_name="holdfast", standalone_mode=False, obj=session)
        if sys.stdout is not None:
            sys.stdout.flush()
        return result if isinstance(result, int) else codes.OK
    except click.Abort:
        return codes.SIGNALLED + 2
    except click.ClickException as exc:
        _tell_usage(exc)
        return codes.USAGE
    except HoldfastError as exc:
        tell(_one_line(exc))
        return codes.code_of(exc)
    except ReaderLeft:
        _drop_stdout()
        return codes.SIGNALLED + 13
    except Exception as exc:
        return _bug(exc, session)


def session_of(ctx: click.Context) -> Session:
    """Returns the session of this call, with its log shown if that was asked for."""
    session = ctx.find_object(Session)
    assert session is not None
    if session.verbose:
        show_log()
    return session


def _tell_usage(exc: click.ClickException) -> None:
    where = getattr(exc, "ctx", None)
    hint = f" (see {where.command_path} --help)" if where is not None else ""
    tell(f"{exc.format_message()}{hint}")


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split())


def _bug(exc: Exception, session: Session) -> int:
    if session.verbose:
        import traceback

        traceback.print_exception(exc)
    tell(f"unexpected {type(exc).__name__}: {_one_line(exc)} (--verbose shows where)")
    return codes.BUG


def _open_standard_files() -> None:
    """Open those that are closed: otherwise a store's connection could get one of their numbers,
    and with it what the command writes there."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
            os.set_inheritable(fd, True)


def _show_what_cannot_be_encoded() -> None:
    """Escape letters of keys and owners that the terminal's encoding lacks, as Python does it on
    stderr."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_stdout() -> None:
    """Send the rest of our output nowhere, so that the interpreter ends without an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
