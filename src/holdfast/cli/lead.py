"""`holdfast lead KEY -- COMMAND…`: of all machines that call it, one runs the command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from holdfast.api.leases import Lease
from holdfast.api.locks import Locks
from holdfast.cli import codes
from holdfast.cli.app import session_of
from holdfast.cli.child import if_it_can_run
from holdfast.cli.params import for_a_command, shared
from holdfast.cli.run import (
    Outcome,
    RunCommand,
    command_of,
    environment,
    hold,
    release,
    warn_if_alone,
)
from holdfast.cli.session import Session
from holdfast.cli.signals import Interrupted, SignalQueue
from holdfast.cli.wait_display import Reporter, display_for
from holdfast.core.caller_effects import Campaign, Ending, Lead, Resign
from holdfast.core.effects import Sleep
from holdfast.core.leading import lead_steps
from holdfast.core.records import SECOND
from holdfast.runtime.run import run


@click.command(cls=RunCommand, epilog=codes.table())
@click.argument("key")
@for_a_command
@shared
@click.pass_context
def lead(ctx: click.Context, /, **options: Any) -> int:
    """Run COMMAND on one machine of many: the one that holds KEY.

    \b
      holdfast lead scheduler -- celery -A app beat

    Start the same line on every machine. One of them leads and runs the command; the others wait,
    for as long as it takes and through outages of the store. When the leader dies, the next one
    runs the command within the ttl; when it is stopped, at once. If its lease is lost, its command
    is stopped (SIGTERM, SIGKILL after the grace time), and it waits like the others.

    When the command ends by itself, the leader resigns and exits with the command's code. Let
    systemd, Kubernetes or a shell loop start this line again.
    """  # fmt: skip
    command = command_of(ctx)
    session = session_of(ctx)
    return if_it_can_run(command, lambda: _Candidate(session, command, **options).serve())


class _Candidate:
    """This process, in campaign or in office. The loop is the core's."""

    def __init__(
        self, session: Session, command: tuple[str, ...], *, key: str, ttl: float | None,
        owner: str | None, note: tuple[tuple[str, str], ...], grace: float, ticket: bool,
        quiet: bool,
    ) -> None:  # fmt: skip
        self._session = session
        self._command = command
        self._key = key
        self._claim: dict[str, Any] = {"ttl": ttl, "owner": owner, "note": dict(note) or None}
        self._grace_s = grace
        self._ticket = ticket
        display = display_for(waits=True, quiet=quiet, verbose=session.verbose)
        self._reporter = Reporter(display, quiet=quiet or session.verbose)
        self._outcome = Outcome(codes.OK)

    def serve(self) -> int:
        """Campaign and lead until the command has ended by itself. Returns the exit code."""
        with self._session.locks(on_event=self._reporter) as locks:
            warn_if_alone(locks)
            handlers: dict[type, Callable[[Any], Any]] = {
                Campaign: lambda asked: self._campaign(locks),
                Lead: lambda asked: self._lead(asked.lease),
                Resign: lambda asked: release(asked.lease),
                Sleep: lambda asked: self._signals.wait(asked.duration / SECOND),
            }
            with SignalQueue() as self._signals:
                try:
                    run(lead_steps(), {}, handlers)
                except Interrupted as interrupted:
                    return codes.SIGNALLED + interrupted.signum
        return self._outcome.exit()

    def _campaign(self, locks: Locks) -> Lease:
        self._signals.interrupt()
        with self._reporter:
            lease = locks.acquire(self._key, fair=True, **self._claim)
        self._signals.collect()
        return lease

    def _lead(self, lease: Lease) -> Ending:
        try:
            self._outcome = hold(
                environment(self._session, lease, ticket=self._ticket),
                self._command,
                self._grace_s,
                lease,
                self._signals,
            )
        except BaseException:
            release(lease)
            raise
        return "lost" if self._outcome.code == codes.LOST else "returned"
