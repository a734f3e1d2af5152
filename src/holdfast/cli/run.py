"""`holdfast run KEY -- COMMAND…`: a command under a lease."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource
from msgspec import Struct
from msgspec.structs import replace

from holdfast.api.leases import Lease
from holdfast.api.locks import Locks
from holdfast.cli import codes
from holdfast.cli.app import session_of
from holdfast.cli.child import Child, if_it_can_run
from holdfast.cli.metrics import exported
from holdfast.cli.params import DURATION, NOTE_ITEM, TICKET, option, shared
from holdfast.cli.session import Session, tell
from holdfast.cli.signals import Interrupted, SignalQueue
from holdfast.cli.supervisor import Supervisor
from holdfast.cli.terminal import Terminal
from holdfast.cli.wait_display import Reporter, display_for
from holdfast.core.tickets import Kind, unseal
from holdfast.errors import BadTicket, Busy, HoldfastError, UsageError

_COMMAND = "holdfast.command"  # where the words after `--` are kept
# What a ticket already decides.
_FIXED_BY = {
    "join": ("ttl", "wait", "busy", "busy_code", "mode", "limit", "owner", "note", "fair", "take"),
    "take": ("wait", "busy", "busy_code", "mode", "limit", "fair"),
}
# A ticket is for this process, not for the command's own `holdfast run`.
_OWN_VARIABLES = ("HOLDFAST_RUN_JOIN", "HOLDFAST_RUN_TAKE")


class RunCommand(click.Command):
    """Does not parse what comes after `--`."""

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


def command_of(ctx: click.Context) -> tuple[str, ...]:
    """Returns the words after `--`."""
    command: tuple[str, ...] = ctx.meta.get(_COMMAND, ())
    if not command:
        raise _nothing_to_run(ctx)
    return command


class RunRequest(Struct, frozen=True, kw_only=True):
    """What was asked for on the command line."""

    key: str | None
    ttl: float | None
    wait: float | None
    busy: str
    busy_code: int | None
    mode: str | None
    limit: int | None
    owner: str | None
    note: tuple[tuple[str, str], ...]
    fair: bool | None
    max_hold: float | None
    grace: float
    join: str | None
    take: str | None
    ticket: bool
    quiet: bool
    metrics: str | None
    metrics_file: str | None
    command: tuple[str, ...]

    @property
    def timeout(self) -> float | None:
        """How long to wait for the lock; None: until it is free."""
        return 0.0 if self.wait is None and self.busy != "wait" else self.wait

    @property
    def code_when_busy(self) -> int:
        """The exit code when the lock stayed taken. To skip is what was asked for: no failure."""
        if self.busy_code is not None:
            return self.busy_code
        return codes.OK if self.busy == "skip" else codes.BUSY

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
    help="How long to wait for the lock.  [default: until it is free; 0 with --busy skip or fail]",
)
@option(
    "--busy",
    type=click.Choice(["wait", "skip", "fail"]),
    default="wait",
    help="What to do when the lock is taken: wait for it, or do not run the command and "
    "exit with code 0 (skip) or 75 (fail).",
)
@option(
    "--busy-code",
    type=click.IntRange(0, 255),
    help="The exit code if the lock could not be acquired.  [default: 75; 0 with --busy skip]",
)
@option(
    "--mode",
    type=click.Choice(["exclusive", "shared"]),
    help="Hold the lock alone, or together with other shared holders.  [default: exclusive]",
)
@option("--limit", type=int, help="How many holders there may be at once; it replaces --mode.")
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
    help="Take a place in the queue at once, or never.  [default: at once; on DynamoDB "
    "and in object stores after 1.5 s]",
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
@TICKET
@option("-q", "--quiet", is_flag=True, help="Print errors only.")
@option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Serve metrics for Prometheus while this runs, on loopback unless a host is given.",
)
@option(
    "--metrics-file",
    metavar="PATH",
    help="Write metrics to this file at the end, for node_exporter's textfile collector.",
)
@shared
@click.pass_context
def run(ctx: click.Context, /, **options: Any) -> int:
    """Run COMMAND while holding the lock KEY.

    \b
      holdfast run nightly -- ./backup.sh
      holdfast run nightly --busy skip -- ./backup.sh
      holdfast run gpu --limit 4 --wait 10m -- python train.py

    The command finds HOLDFAST_KEY, HOLDFAST_KEY_HEX, HOLDFAST_FENCE, HOLDFAST_TICKET and
    HOLDFAST_URL in its environment. Signals are passed on to its process group. If the lease is
    lost, the group gets SIGTERM, and SIGKILL after the grace time.

    Put a key that begins with a dash between two --: holdfast run -- -KEY -- COMMAND...

    With --join or --take the key comes from the ticket; if KEY is given, it must be the same.
    """  # fmt: skip
    request = _with_dashed_key(RunRequest(**options, command=ctx.meta.get(_COMMAND, ())))
    _check(ctx, request)
    session = session_of(ctx)
    return if_it_can_run(request.command, lambda: _run(session, request))


def _with_dashed_key(request: RunRequest) -> RunRequest:
    """Read the key from `run -- -KEY -- COMMAND…`, where no other key is given."""
    named = request.key is not None or request.join is not None or request.take is not None
    if named or request.command[1:2] != ("--",):
        return request
    return replace(request, key=request.command[0], command=request.command[2:])


def _nothing_to_run(ctx: click.Context) -> click.UsageError:
    return click.UsageError(
        f"Name the command to run after --, as in {ctx.command_path} KEY -- COMMAND...", ctx
    )


def _check(ctx: click.Context, request: RunRequest) -> None:
    if not request.command:
        raise _nothing_to_run(ctx)
    for name in _OWN_VARIABLES:
        if os.environ.get(name) == "":  # which click takes for no ticket: it would run all the same
            raise BadTicket(f"{name} is empty: there was no ticket to pass on.")
    for way in ("join", "take"):
        if getattr(request, way) is not None:
            for name in _FIXED_BY[way]:
                if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                    flag = "--" + name.replace("_", "-")
                    raise click.UsageError(f"{flag} cannot go with --{way}.", ctx)
            _check_ticket_key(
                request, "share" if way == "join" else "hand-over", getattr(request, way)
            )
            return
    if request.key is None:
        raise click.UsageError("Name the lock, as in holdfast run KEY -- COMMAND...", ctx)


def _check_ticket_key(request: RunRequest, kind: Kind, ticket: str) -> None:
    key = unseal(kind, ticket).key
    if request.key is not None and request.key != key:
        raise UsageError(f"The ticket is for {key!r}, not for {request.key!r}: leave the key out.")


# --- acquire ------------------------------------------------------------------------------


def _run(session: Session, request: RunRequest) -> int:
    try:
        with (
            exported(request.metrics, request.metrics_file) as sinks,
            SignalQueue() as signal_queue,
        ):
            outcome = _get_and_hold(session, request, signal_queue, sinks)
    except Interrupted as interrupted:
        return codes.SIGNALLED + interrupted.signum
    except Busy as busy:
        _tell_busy(request, busy)
        return request.code_when_busy
    return outcome.exit()


def _get_and_hold(
    session: Session, request: RunRequest, signal_queue: SignalQueue, sinks: list[Any]
) -> Outcome:
    display = display_for(waits=request.timeout != 0, quiet=request.quiet, verbose=session.verbose)
    reporter = Reporter(display, quiet=request.quiet or session.verbose)
    lease: Lease | None = None
    with session.locks(on_event=reporter, sinks=sinks) as locks:
        warn_if_alone(locks)
        try:
            with reporter:
                lease = _get(locks, request)
            signal_queue.collect()
            env = environment(session, lease, ticket=request.ticket)
            return hold(env, request.command, request.grace, lease, signal_queue)
        finally:
            if lease is not None:
                release(lease)


def warn_if_alone(locks: Locks) -> None:
    """Warn that a store for this process alone keeps nobody out."""
    facts = locks.facts
    if facts.reach == "process" and facts.name != "null":  # that one warns by itself
        tell(
            f"warning: the {facts.name} store is only for this process: other processes do "
            "not see its locks"
        )


def _get(locks: Locks, request: RunRequest) -> Lease:
    if request.join is not None:
        return locks.join(request.join, max_hold=request.max_hold)
    common: dict[str, Any] = {
        "ttl": request.ttl, "owner": request.owner, "note": request.notes,
        "max_hold": request.max_hold,
    }  # fmt: skip
    if request.take is not None:
        return locks.take(request.take, **common)
    assert request.key is not None
    claim: dict[str, Any] = {"mode": request.mode, "limit": request.limit, "fair": request.fair}
    return locks.acquire(request.key, timeout=request.timeout, **claim, **common)


def _tell_busy(request: RunRequest, busy: Busy) -> None:
    if request.busy == "skip":
        if not request.quiet:
            tell(f"skipped, with exit code {request.code_when_busy}: {busy}")
    else:
        tell(str(busy))


# --- hold ---------------------------------------------------------------------------------


class Outcome(Struct, frozen=True):
    """How `run` ended."""

    code: int
    interrupted_at_terminal: bool = False

    def exit(self) -> int:
        """Returns the exit code. A Ctrl-C that only the command received is sent to our own group
        too, so that a shell loop around us ends as well; it ends this process."""
        if self.interrupted_at_terminal:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.killpg(os.getpgrp(), signal.SIGINT)
        return self.code


def hold(
    env: Mapping[str, str],
    command: tuple[str, ...],
    grace_s: float,
    lease: Lease,
    signal_queue: SignalQueue,
) -> Outcome:
    """Run a command under a lease, to the end of either."""
    terminal = Terminal.open()
    try:
        child = Child(command, env, first=None if terminal is None else terminal.gift())
        supervisor = Supervisor(child, lease, signal_queue, terminal, grace_s)
        lost = _run_or_stop(supervisor)
        at_terminal = terminal is not None and terminal.given_away
    finally:
        if terminal is not None:
            terminal.close()
    if lost:
        return Outcome(codes.LOST)
    return _ended(child, lease, at_terminal)


def _run_or_stop(supervisor: Supervisor) -> bool:
    try:
        return supervisor.run()
    except BaseException:
        supervisor.stop()  # an error of ours must not leave the command without a lease
        raise


def _ended(child: Child, lease: Lease, at_terminal: bool) -> Outcome:
    """Returns the outcome of a command that ended by itself: only now we know whether the lease
    protected it to its end."""
    assert child.code is not None
    held = lease.held
    release(lease)
    if not held or lease.hold.state == "lost":
        tell(f"lost the lease on {lease.key!r} before the command ended (code {child.code})")
        return Outcome(codes.LOST)
    return Outcome(child.code, at_terminal and child.signalled == signal.SIGINT)


def release(lease: Lease) -> None:
    """Release the lease, unless that was done before."""
    try:
        lease.release()
    except HoldfastError as trouble:
        tell(f"{lease.key!r} could not be released, and its ttl will free it: {trouble}")


def environment(session: Session, lease: Lease, *, ticket: bool) -> dict[str, str]:
    """Returns the environment of a command that runs under a lease, with a ticket or without."""
    if "\0" in lease.key:
        raise UsageError("A key with a NUL in it does not fit into the environment.")
    inherited = {name: value for name, value in os.environ.items() if name not in _OWN_VARIABLES}
    inherited.pop("HOLDFAST_TICKET", None)  # of an outer lease
    return {
        **inherited,
        "HOLDFAST_KEY": lease.key,
        "HOLDFAST_KEY_HEX": lease.key.encode().hex(),  # needs no quoting in SQL
        "HOLDFAST_FENCE": str(lease.fence),
        "HOLDFAST_URL": session.full_url,
        **({"HOLDFAST_TICKET": lease.ticket} if ticket else {}),
    }
