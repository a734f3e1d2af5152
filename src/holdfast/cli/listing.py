"""`holdfast ls` and `holdfast show`: look at locks."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

import click

from holdfast.cli.app import session_of
from holdfast.cli.params import PREFIX, as_json, option, shared

if TYPE_CHECKING:
    from holdfast.api.info import LockInfo


@click.command()
@click.argument("prefix", type=PREFIX, default="")
@option(
    "-a",
    "--all",
    "free",
    envvar="HOLDFAST_LS_ALL",
    is_flag=True,
    help="Also list free locks that the store remembers.",
)
@as_json("Write one JSON object per lock, each on its line.")
@shared
@click.pass_context
def ls(ctx: click.Context, prefix: str, free: bool, json: bool) -> None:
    """List the locks whose keys start with PREFIX.

    It lists the locks that are held or waited for, as they are read from the store. `holdfast show`
    says who waits. A terminal with fewer than 100 columns shows no fences; `holdfast show` and
    --json do.
    """
    from holdfast.cli import render

    with session_of(ctx).locks() as locks:
        found = locks.list(prefix, free=free)
        if json:
            for lock in found:
                render.print_json(lock)
            return
        first = next(found, None)
        if first is not None:
            _print_table(chain([first], found))
    if first is None:
        click.echo("No locks." if not prefix else f"No locks under {prefix!r}.", err=True)


def _print_table(found: Iterable[LockInfo]) -> None:
    from holdfast.cli import render

    out = render.console()
    if not out.is_terminal:
        for line in render.lock_lines(found):
            sys.stdout.write(f"{line}\n")
        return
    for some in render.chunks(found, render.ROWS):
        out.print(render.lock_table(some, out.width))


@click.command()
@click.argument("key")
@as_json("Write one JSON object.")
@shared
@click.pass_context
def show(ctx: click.Context, key: str, json: bool) -> None:
    """Show who holds the lock KEY and who waits for it, in the order of their turn.

    Those who wait are those with a place in the store's queue. Threads and tasks of one Python
    process wait in a line of their own, of which only the first may have such a place.
    """
    from holdfast.cli import render

    with session_of(ctx).locks() as locks:
        lock = locks.show(key)
    if json:
        render.print_json(lock)
        return
    out = render.console()
    for part in render.lock_page(lock):
        out.print(part)
