"""`holdfast once KEY --into PLACE -- COMMAND…`: one run of a command for many callers."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import click

from holdfast.api.leases import Lease
from holdfast.cli import codes
from holdfast.cli.app import session_of
from holdfast.cli.child import Child, if_it_can_run
from holdfast.cli.once_place import Output, place_of
from holdfast.cli.params import DURATION, for_a_command, option, shared
from holdfast.cli.run import RunCommand, command_of, environment, warn_if_alone
from holdfast.cli.session import Session
from holdfast.cli.signals import Interrupted, SignalQueue
from holdfast.cli.supervisor import Supervisor
from holdfast.cli.wait_display import Reporter, display_for
from holdfast.errors import LeaseLost


@click.command(cls=RunCommand, epilog=codes.table())
@click.argument("key")
@option(
    "--into",
    required=True,
    metavar="PLACE",
    help="Where the output is kept: a file, a directory (with a / at its end), or the URL of "
    "Redis, of a database or of a bucket.",
)
@option("--keep-for", type=DURATION, help="How long the output is kept.  [default: for ever]")
@option(
    "--keep-failures",
    is_flag=True,
    help="Also keep the output of a command that fails: every caller gets its exit code, "
    "and nobody runs it again.",
)
@option(
    "--wait",
    type=DURATION,
    help="How long to wait for another caller's output.  [default: until it is there]",
)
@for_a_command
@shared
@click.pass_context
def once(ctx: click.Context, /, **options: Any) -> int:
    """Run COMMAND once for KEY, and give everybody its output.

    \b
      holdfast once report:2026-11 --into report.csv -- ./make-report
      holdfast once "build:$COMMIT" --into s3://artefacts/builds -- ./build

    If the output is in PLACE, it is written to standard output. Otherwise the first caller runs the
    command, and the others wait for its output. If the command fails, its caller gets the output
    and the exit code, and the next caller runs it again. If that machine dies, the next caller
    runs the command within the ttl: so it may begin more than once, but one output is published.
    """  # fmt: skip
    command = command_of(ctx)
    session = session_of(ctx)
    return if_it_can_run(command, lambda: _Call(session, command, **options).run())


class _Failed(Exception):
    """The command has failed, and its output is not to be kept."""

    def __init__(self, made: Output) -> None:
        super().__init__(f"The command ended with code {made.code}.")
        self.made = made


class _Call:
    """One call of `holdfast once`."""

    def __init__(
        self, session: Session, command: tuple[str, ...], *, key: str, into: str,
        keep_for: float | None, keep_failures: bool, wait: float | None, ttl: float | None,
        owner: str | None, note: tuple[tuple[str, str], ...], grace: float, ticket: bool,
        quiet: bool,
    ) -> None:  # fmt: skip
        self._session = session
        self._command = command
        self._key = key
        self._place = place_of(into, keep_for)
        self._keep_failures = keep_failures
        self._grace_s = grace
        self._ticket = ticket
        self._options: dict[str, Any] = {
            "timeout": wait, "ttl": ttl, "owner": owner, "note": dict(note) or None,
        }  # fmt: skip
        display = display_for(waits=wait != 0, quiet=quiet, verbose=session.verbose)
        self._reporter = Reporter(display, quiet=quiet or session.verbose)

    def run(self) -> int:
        """Find or make the output, and write it. Returns the exit code."""
        try:
            with (
                SignalQueue() as self._signals,
                self._session.locks(on_event=self._reporter) as locks,
                self._reporter,
            ):
                warn_if_alone(locks)
                made = locks.once(self._key, make=self._make, into=self._place, **self._options)
        except Interrupted as interrupted:
            return codes.SIGNALLED + interrupted.signum
        except _Failed as failed:
            made = failed.made
        sys.stdout.buffer.write(made.output)
        code: int = made.code
        return code

    def _make(self, lease: Lease) -> Output:
        """Run the command under the lease."""
        self._signals.collect()
        with tempfile.TemporaryFile() as output:
            env = environment(self._session, lease, ticket=self._ticket)
            child = Child(self._command, env, output)
            supervisor = Supervisor(child, lease, self._signals, None, self._grace_s)
            try:
                lost = supervisor.run()
            except BaseException:
                supervisor.stop()
                raise
            if lost:
                raise LeaseLost(f"The lease on {self._key!r} was lost.", key=self._key)
            assert child.code is not None
            output.seek(0)
            made = Output(child.code, output.read())
        if made.code and not self._keep_failures:
            raise _Failed(made)
        return made
