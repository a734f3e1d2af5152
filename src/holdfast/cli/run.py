"""`holdfast run KEY -- COMMAND…`: a command under a lease."""

from __future__ import annotations

import os
import signal
from typing import Any

import click
from click.core import ParameterSource
from msgspec import Struct
from msgspec.structs import replace

from holdfast.api.leases import Lease
from holdfast.api.locks import Locks
from holdfast.cli import codes
from holdfast.cli.app import connected
from holdfast.cli.child import CannotRun, Child, check_command
from holdfast.cli.params import DURATION, NOTE_ITEM, option, shared
from holdfast.cli.session import Session, tell
from holdfast.cli.signals import Inbox, Interrupted
from holdfast.cli.supervise import Supervisor
from holdfast.cli.terminal import Terminal
from holdfast.cli.waiting import Reporter, teller_for
from holdfast.core.tickets import Kind, unseal
from holdfast.errors import Busy, HoldfastError, UsageError

_COMMAND = "holdfast.command"  # where the words after `--` are kept
# What a ticket already decides.
_FIXED_BY = {
    "join": ("ttl", "wait", "busy", "busy_code", "mode", "limit", "owner", "note", "fair", "take"),
    "take": ("wait", "busy", "busy_code", "mode", "limit", "fair"),
}
# A ticket is for this process, not for the command's own `holdfast run`.
_OWN_VARIABLES = ("HOLDFAST_RUN_JOIN", "HOLDFAST_RUN_TAKE")


class RunCommand(click.Command):
    """Keeps what comes after `--` as it is."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[cut + 1 :])
            args = args[:cut]
        elif not ctx.resilient_parsing and not {"-h", "--help"}.intersection(args):
            raise _nothing_to_run(ctx)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


class Ask(Struct, frozen=True, kw_only=True):
    """What was asked for on the command line."""

    key: str | None
    ttl: float | None
    wait: float | None
    busy: str
    busy_code: int
    mode: str | None
    limit: int | None
    owner: str | None
    note: tuple[tuple[str, str], ...]
    fair: bool | None
    max_hold: float | None
    grace: float
    join: str | None
    take: str | None
    quiet: bool
    command: tuple[str, ...]

    @property
    def timeout(self) -> float | None:
        """How long to wait for the lock; None: as long as it takes."""
        return 0.0 if self.wait is None and self.busy != "wait" else self.wait

    @property
    def notes(self) -> dict[str, Any] | None:
        return dict(self.note) or None


@click.command(cls=RunCommand, epilog=codes.table())
@click.argument("key", required=False)
@option(
    "--ttl",
    type=DURATION,
    help="How long the lock outlives this process if it dies.  "
    "[default: 30s; with --take the ticket's]",
)
@option(
    "--wait",
    type=DURATION,
    help="How long to wait for the lock.  "
    "[default: as long as it takes; 0 with --busy skip or fail]",
)
@option(
    "--busy",
    type=click.Choice(["wait", "skip", "fail"]),
    default="wait",
    help="When the lock is taken: wait for it, or do not run the command, with a notice "
    "(skip) or an error (fail).",
)
@option(
    "--busy-code",
    type=click.IntRange(0, 255),
    default=codes.BUSY,
    help="The exit code when the lock stayed taken.",
)
@option(
    "--mode",
    type=click.Choice(["exclusive", "shared"]),
    help="Alone, or together with others that share.  [default: exclusive]",
)
@option("--limit", type=int, help="Instead of a mode: how many holders there may be at once.")
@option("--owner", help="The name that others see as the holder.  [default: host:pid]")
@option(
    "--note",
    type=NOTE_ITEM,
    multiple=True,
    help="A note for people to read; may be repeated (in the variable: separated by spaces).",
)
@option(
    "--fair/--unfair",
    default=None,
    help="Queue at once, or never.  [default: after 1.5 s; on Redis at once]",
)
@option("--max-hold", type=DURATION, help="Stop renewing after this long; the lease is then lost.")
@option(
    "--grace",
    type=DURATION,
    default="10s",
    help="How long the command has to stop after SIGTERM when the lease is lost.",
)
@option(
    "--join",
    metavar="TICKET",
    show_default=False,
    help="Keep the lease of this ticket (HOLDFAST_TICKET) alive together with its holder.",
)
@option(
    "--take",
    metavar="TICKET",
    show_default=False,
    help="Become the holder of a lease that was handed over with this ticket.",
)
@option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@shared
@click.pass_context
def run(ctx: click.Context, /, **options: Any) -> int:
    """Run COMMAND while holding the lock KEY.

    \b
      holdfast run nightly -- ./backup.sh
      holdfast run nightly --busy skip -- ./backup.sh
      holdfast run gpu --limit 4 --wait 10m -- python train.py

    The command finds HOLDFAST_KEY, HOLDFAST_FENCE, HOLDFAST_TICKET and HOLDFAST_URL in its
    environment. Signals are passed on to its process group. If the lease is lost, the group
    gets SIGTERM, and SIGKILL after the grace time.

    Put a key that begins with a dash between two --: holdfast run -- -KEY -- COMMAND...

    With --join or --take the key comes from the ticket; if KEY is given, it must be the same.
    """  # fmt: skip
    ask = _with_dashed_key(Ask(**options, command=ctx.meta.get(_COMMAND, ())))
    _check(ctx, ask)
    session = connected(ctx)
    try:
        check_command(ask.command[0])
        return _run(session, ask)
    except CannotRun as exc:
        tell(str(exc))
        return exc.code


def _with_dashed_key(ask: Ask) -> Ask:
    """`run -- -KEY -- COMMAND…`: where a key is missing, it stands between two `--`."""
    named = ask.key is not None or ask.join is not None or ask.take is not None
    if named or ask.command[1:2] != ("--",):
        return ask
    return replace(ask, key=ask.command[0], command=ask.command[2:])


def _nothing_to_run(ctx: click.Context) -> click.UsageError:
    return click.UsageError("Say what to run, after --: holdfast run KEY -- COMMAND...", ctx)


def _check(ctx: click.Context, ask: Ask) -> None:
    if not ask.command:
        raise _nothing_to_run(ctx)
    for way in ("join", "take"):
        if getattr(ask, way) is not None:
            for name in _FIXED_BY[way]:
                if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                    flag = "--" + name.replace("_", "-")
                    raise click.UsageError(f"{flag} cannot go with --{way}.", ctx)
            _check_ticket_key(ask, "share" if way == "join" else "hand-over", getattr(ask, way))
            return
    if ask.key is None:
        raise click.UsageError("Name the lock: holdfast run KEY -- COMMAND...", ctx)


def _check_ticket_key(ask: Ask, kind: Kind, ticket: str) -> None:
    key = unseal(kind, ticket).key
    if ask.key is not None and ask.key != key:
        raise UsageError(f"The ticket is for {key!r}, not for {ask.key!r}: leave the key out.")


# --- get it -------------------------------------------------------------------------------


def _run(session: Session, ask: Ask) -> int:
    try:
        with Inbox() as inbox:
            outcome = _get_and_hold(session, ask, inbox)
    except Interrupted as interrupted:
        return codes.SIGNALLED + interrupted.signum
    except Busy as busy:
        _tell_busy(ask, busy)
        return ask.busy_code
    return outcome.exit()


def _get_and_hold(session: Session, ask: Ask, inbox: Inbox) -> Outcome:
    teller = teller_for(waits=ask.timeout != 0, quiet=ask.quiet, verbose=session.verbose)
    reporter = Reporter(teller, quiet=ask.quiet or session.verbose)
    lease: Lease | None = None
    with session.locks(on_event=reporter) as locks:
        _warn_if_alone(locks)
        try:
            with reporter:
                lease = _get(locks, ask)
            inbox.collect()
            return _hold(session, ask, lease, inbox)
        finally:
            if lease is not None:
                _release(lease)


def _warn_if_alone(locks: Locks) -> None:
    facts = locks.facts
    if facts.reach == "process" and facts.name != "null":  # that one warns by itself
        tell(f"warning: the {facts.name} store is only for this process: it keeps nobody else out")


def _get(locks: Locks, ask: Ask) -> Lease:
    if ask.join is not None:
        return locks.join(ask.join, max_hold=ask.max_hold)
    if ask.take is not None:
        return locks.take(
            ask.take, ttl=ask.ttl, owner=ask.owner, note=ask.notes, max_hold=ask.max_hold
        )
    assert ask.key is not None
    return locks.acquire(
        ask.key,
        ttl=ask.ttl,
        timeout=ask.timeout,
        mode=ask.mode,
        limit=ask.limit,
        fair=ask.fair,
        owner=ask.owner,
        note=ask.notes,
        max_hold=ask.max_hold,
    )


def _tell_busy(ask: Ask, busy: Busy) -> None:
    if ask.busy == "skip":
        if not ask.quiet:
            tell(f"skipped: {busy}")
    else:
        tell(str(busy))


# --- hold it ------------------------------------------------------------------------------


class Outcome(Struct, frozen=True):
    """How it ended."""

    code: int
    interrupted_at_terminal: bool = False

    def exit(self) -> int:
        """The exit code. A Ctrl-C that only the command saw is passed on to our own group,
        so that a shell loop around us ends as well; we end by it ourselves."""
        if self.interrupted_at_terminal:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.killpg(os.getpgrp(), signal.SIGINT)
        return self.code


def _hold(session: Session, ask: Ask, lease: Lease, inbox: Inbox) -> Outcome:
    child = Child(ask.command, _environment(session, lease))
    terminal = Terminal.open()
    supervisor = Supervisor(child, lease, inbox, terminal, ask.grace)
    try:
        lost = supervisor.run()
        at_terminal = terminal is not None and terminal.lent
    except BaseException:
        supervisor.stop()  # a mistake of ours must not leave it unprotected
        raise
    finally:
        if terminal is not None:
            terminal.close()
    if lost:
        return Outcome(codes.LOST)
    return _ended(child, lease, at_terminal)


def _ended(child: Child, lease: Lease, at_terminal: bool) -> Outcome:
    """The command ended by itself. Whether it was protected to its end shows only now."""
    assert child.code is not None
    held = lease.held
    _release(lease)
    if not held or lease.hold.state == "lost":
        tell(f"lost the lease on {lease.key!r} before the command ended (code {child.code})")
        return Outcome(codes.LOST)
    return Outcome(child.code, at_terminal and child.signalled == signal.SIGINT)


def _release(lease: Lease) -> None:
    """Give it back, if that was not done before."""
    try:
        lease.release()
    except HoldfastError as trouble:
        tell(f"{lease.key!r} could not be released, and its ttl will free it: {trouble}")


def _environment(session: Session, lease: Lease) -> dict[str, str]:
    if "\0" in lease.key:
        raise UsageError("A key with a NUL in it does not fit into the environment.")
    inherited = {name: value for name, value in os.environ.items() if name not in _OWN_VARIABLES}
    return {
        **inherited,
        "HOLDFAST_KEY": lease.key,
        "HOLDFAST_FENCE": str(lease.fence),
        "HOLDFAST_TICKET": lease.ticket,
        "HOLDFAST_URL": session.full_url,
    }
