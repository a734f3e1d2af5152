"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.session import Session

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic only in the later releases of click 8

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|h|d|)", re.ASCII)
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

# Every option has an environment variable, and its help names it.
option = functools.partial(click.option, show_envvar=True)


class Duration(ParamType):
    """`30`, `30s`, `5m`, `2h`, `1d` or `500ms`, as seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            self.fail(f"{value!r} is not a duration such as 30, 30s, 5m, 2h or 1d.", param, ctx)
        number, unit = match.groups()
        return float(number) * _UNITS[unit]


class Patience(Duration):
    """A duration, or `forever`."""

    name = "duration or forever"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        return float("inf") if value == "forever" else super().convert(value, param, ctx)


class NoteItem(ParamType):
    """`name=value`, as a pair."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not of the form name=value.", param, ctx)
        return name, text


class Prefix(ParamType):
    """What keys start with."""

    name = "prefix"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail("It is not text in UTF-8.", param, ctx)
        return str(value)


DURATION = Duration()
PATIENCE = Patience()
PREFIX = Prefix()
NOTE_ITEM = NoteItem()


def shared(command: F) -> F:
    """Add the options that may stand before or after a command's name."""
    for add in (_VERBOSE, _STORE_PATIENCE, _REQUEST_TIMEOUT, _URL):
        command = add(command)
    return command


def for_a_command(command: F) -> F:
    """Add the options of commands that run another command under a lock for many machines."""
    for add in (_QUIET, TICKET, _GRACE, _NOTE, _OWNER, _TTL):
        command = add(command)
    return command


def as_json(what: str) -> Callable[[F], F]:
    """`--json`."""
    return option("--json", is_flag=True, help=what)


def _set(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep an option in the session; the command line takes precedence over the environment."""
    session = ctx.find_object(Session)
    assert session is not None
    assert param.name is not None
    said = ctx.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE
    if said and value == "":
        raise click.BadParameter("It is empty: name a store, or leave it out.", ctx, param)
    if _is_given(value) and (said or not _is_given(getattr(session, param.name))):
        setattr(session, param.name, value)


def _is_given(value: Any) -> bool:
    return value is not None and value is not False and value != ""


_URL = option(
    "--url",
    envvar="HOLDFAST_URL",
    metavar="URL",
    expose_value=False,
    callback=_set,
    help="The store, as in sqlite:///var/lib/app/locks.db. Without it, an SQLite file of "
    "this user on this machine.",
)
_REQUEST_TIMEOUT = option(
    "--request-timeout",
    envvar="HOLDFAST_REQUEST_TIMEOUT",
    type=DURATION,
    expose_value=False,
    callback=_set,
    help="How long the store may take to answer.  [default: 5s]",
)
_STORE_PATIENCE = option(
    "--store-patience",
    envvar="HOLDFAST_STORE_PATIENCE",
    type=PATIENCE,
    expose_value=False,
    callback=_set,
    help="How long to go on waiting for a lock while the store is away, or `forever`.  "
    "[default: 60s]",
)
_VERBOSE = option(
    "-v",
    "--verbose",
    envvar="HOLDFAST_VERBOSE",
    is_flag=True,
    expose_value=False,
    callback=_set,
    help="Show the log, and the traceback of an unexpected error.",
)
_TTL = option(
    "--ttl",
    type=DURATION,
    help="How long the others wait when this machine dies.  [default: 30s]",
)
_OWNER = option("--owner", help="The name that others see as the holder.  [default: host:pid]")
_NOTE = option(
    "--note", type=NOTE_ITEM, multiple=True, help="A note for people to read; may be repeated."
)
_GRACE = option(
    "--grace",
    type=DURATION,
    default="10s",
    help="How long the command has to stop after SIGTERM when the lease is lost.",
)
TICKET = option(
    "--ticket/--no-ticket",
    default=True,
    help="Whether the command gets HOLDFAST_TICKET, with which it could end the lease.",
)
_QUIET = option("-q", "--quiet", is_flag=True, help="Print errors only.")
