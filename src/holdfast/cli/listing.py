"""`holdfast ls` and `holdfast show`: look at locks."""

from __future__ import annotations

import click

from holdfast.cli.app import connected
from holdfast.cli.params import PREFIX, as_json, option, shared


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
@as_json("One JSON object per line and lock.")
@shared
@click.pass_context
def ls(ctx: click.Context, prefix: str, free: bool, json: bool) -> None:
    """List the locks whose keys start with PREFIX.

    Those that are held, or waited for. The list is written as it is read. On a terminal of less
    than 100 columns it has no fences: `holdfast show` tells them, and --json.
    """
    from holdfast.cli import render

    with connected(ctx).locks() as locks:
        found = locks.list(prefix, free=free)
        if json:
            for lock in found:
                render.print_json(lock)
            return
        out, any_found = render.console(), False
        for some in render.chunks(found, render.ROWS):
            any_found = True
            out.print(render.lock_table(some, out.width))
    if not any_found:
        click.echo("No locks." if not prefix else f"No locks under {prefix!r}.", err=True)


@click.command()
@click.argument("key")
@as_json("One JSON object.")
@shared
@click.pass_context
def show(ctx: click.Context, key: str, json: bool) -> None:
    """Show who holds the lock KEY and who waits for it, in the order of their turn."""
    from holdfast.cli import render

    with connected(ctx).locks() as locks:
        lock = locks.show(key)
    if json:
        render.print_json(lock)
        return
    out = render.console()
    for part in render.lock_page(lock):
        out.print(part)
