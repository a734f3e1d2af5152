"""`holdfast wait KEY`: until nobody holds a lock, without taking it."""

from __future__ import annotations

import click

from holdfast.cli import codes
from holdfast.cli.app import session_of
from holdfast.cli.params import DURATION, as_json, option, shared
from holdfast.cli.signals import Interrupted, SignalQueue
from holdfast.cli.wait_display import Reporter, display_for


@click.command()
@click.argument("key")
@option(
    "--timeout",
    type=DURATION,
    help="How long to wait; 0 only looks.  [default: until it is free]",
)
@option("-q", "--quiet", is_flag=True, help="Print errors only.")
@as_json("Write the free lock as one JSON object.")
@shared
@click.pass_context
def wait(ctx: click.Context, key: str, timeout: float | None, quiet: bool, json: bool) -> int:
    """Wait until nobody holds the lock KEY, without taking it.

    \b
      holdfast wait nightly && ./report.sh
      holdfast wait nightly --timeout 0 --quiet || echo "nightly is running"

    While it waits, it says who holds the lock. By the time it ends, somebody else may hold the lock
    again.
    """
    session = session_of(ctx)
    display = display_for(waits=timeout != 0, quiet=quiet, verbose=session.verbose)
    reporter = Reporter(display, quiet=quiet or session.verbose)
    try:
        with SignalQueue(), session.locks(on_event=reporter) as locks, reporter:
            lock = locks.wait_until_free(key, timeout)
    except Interrupted as interrupted:
        return codes.SIGNALLED + interrupted.signum
    if json:
        from holdfast.cli import render

        render.print_json(lock)
    return codes.OK
