"""`holdfast wait KEY`: until nobody holds a lock, without taking it."""

from __future__ import annotations

import click

from holdfast.cli import codes
from holdfast.cli.app import connected
from holdfast.cli.params import DURATION, as_json, option, shared
from holdfast.cli.signals import Inbox, Interrupted
from holdfast.cli.waiting import Reporter, teller_for


@click.command()
@click.argument("key")
@option(
    "--timeout",
    type=DURATION,
    help="How long to wait; 0 only looks.  [default: as long as it takes]",
)
@option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@as_json("The free lock as one JSON object.")
@shared
@click.pass_context
def wait(ctx: click.Context, key: str, timeout: float | None, quiet: bool, json: bool) -> int:
    """Wait until nobody holds the lock KEY, without taking it.

    \b
      holdfast wait nightly && ./report.sh
      holdfast wait nightly --timeout 0 --quiet || echo "nightly is running"

    Meanwhile it says who holds it. By the time it ends, somebody else may hold it again.
    """
    session = connected(ctx)
    teller = teller_for(waits=timeout != 0, quiet=quiet, verbose=session.verbose)
    reporter = Reporter(teller, quiet=quiet or session.verbose)
    try:
        with Inbox(), session.locks(on_event=reporter) as locks, reporter:
            lock = locks.wait_until_free(key, timeout)
    except Interrupted as interrupted:
        return codes.SIGNALLED + interrupted.signum
    if json:
        from holdfast.cli import render

        render.print_json(lock)
    return codes.OK
