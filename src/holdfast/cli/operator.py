"""`holdfast evict`, `purge` and `setup`: the commands for operators."""

from __future__ import annotations

import os
import sys
from contextlib import closing

import click

from holdfast.api.info import HolderInfo
from holdfast.api.locks import Locks
from holdfast.api.store_source import open_source
from holdfast.cli import codes
from holdfast.cli.app import session_of
from holdfast.cli.params import DURATION, PREFIX, as_json, option, shared
from holdfast.cli.session import tell
from holdfast.cli.terminal import is_terminal
from holdfast.core.evicting import has_fence
from holdfast.errors import CorruptRecord

# No lease has this fence. To evict it ends no lease, but replaces an unreadable record.
NOBODYS_FENCE = 0


@click.command()
@click.argument("key")
@option("--fence", type=int, help="Evict only the holder with this fence.")
@option("--waiters", is_flag=True, help="Evict those who wait now instead of the holders.")
@option("--reason", default="", help="The reason, for the evicted holder, the log and `show`.")
@option("--operator", help="Who you are.  [default: user@host]")
@option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@as_json("Write one JSON object per evicted holder.")
@shared
@click.pass_context
def evict(
    ctx: click.Context,
    key: str,
    fence: int | None,
    waiters: bool,
    reason: str,
    operator: str | None,
    yes: bool,
    json: bool,
) -> int:
    """Evict whoever holds the lock KEY.

    An evicted holder learns of it when it next renews, and may write until then; its writes
    carry an older fence. A record that cannot be read is replaced by an empty one, unless a newer
    release wrote it.

    Only the holders that it has shown are evicted, not one that came since.

    With --waiters, the queue is emptied instead. This helps a queue that is stuck behind a place
    that does not run out. Those who are alive go on waiting, and take a new place.
    """
    from holdfast.cli.render import holder_line, print_json

    if waiters and fence is not None:
        raise click.UsageError("--fence names a holder: it cannot go with --waiters.")
    with session_of(ctx).locks() as locks:
        if waiters:
            return _evict_waiters(locks, key, reason, operator or _who_i_am(), yes, json)
        try:
            holders = _holders(locks, key, fence)
        except CorruptRecord as corrupt:
            if corrupt.newer:
                raise
            return _replace_unreadable(locks, key, yes, corrupt)
        if not holders:
            locks.evict(key, fence=NOBODYS_FENCE)  # in case its fence cannot grow any further
            which = "" if fence is None else f" with the fence {fence}"
            tell(f"nobody holds {key!r}{which}")
            return codes.NO
        for holder in holders:
            tell(f"{key!r} is held by {holder_line(holder)}")
        if not _confirmed(yes, "Evict them?" if len(holders) > 1 else "Evict it?"):
            return codes.NO
        by = operator or _who_i_am()
        evicted = [
            out
            for one in holders
            for out in locks.evict(key, fence=one.fence, reason=reason, operator=by)
        ]
    for holder in evicted:
        if json:
            print_json(holder)
        else:
            tell(f"evicted {holder_line(holder)}")
    if not evicted:
        tell("the lock was released meanwhile")
    return codes.OK if evicted else codes.NO


def _evict_waiters(
    locks: Locks, key: str, reason: str, operator: str, yes: bool, json: bool
) -> int:
    from holdfast.cli.render import print_json, waiter_line

    waiting = locks.show(key).waiters
    for waiter in waiting:
        tell(f"waiting for {key!r}: {waiter_line(waiter)}")
    if waiting and not _confirmed(yes, "Evict them?" if len(waiting) > 1 else "Evict it?"):
        return codes.NO
    # Also if nobody is shown: a place that has run out is not.
    evicted = locks.evict(key, waiters=True, reason=reason, operator=operator)
    for waiter in evicted:
        if json:
            print_json(waiter)
        else:
            tell(f"evicted {waiter_line(waiter)}")
    if not evicted:
        tell(f"nobody waits for {key!r}")
    return codes.OK if evicted else codes.NO


def _who_i_am() -> str:
    """Returns the user and the machine, as well as they are known."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in some containers
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def _holders(locks: Locks, key: str, fence: int | None) -> list[HolderInfo]:
    lock = locks.show(key)
    if fence is None:
        return list(lock.holders)
    return [one for one in lock.holders if has_fence(fence, one.mode, one.fence, lock.fence)]


def _replace_unreadable(locks: Locks, key: str, yes: bool, corrupt: CorruptRecord) -> int:
    tell(str(corrupt))
    if not _confirmed(yes, "Replace it? Whoever holds the lock loses it."):
        return codes.NO
    locks.evict(key, fence=NOBODYS_FENCE)
    tell(f"the record of {key!r} is empty now")
    return codes.OK


def _confirmed(yes: bool, question: str) -> bool:
    if yes:
        return True
    if not is_terminal(sys.stdin):
        tell("there is no terminal to ask for confirmation on: pass --yes")
        return False
    return click.confirm(question, err=True)


@click.command()
@click.argument("prefix", type=PREFIX, default="")
@option(
    "--older-than",
    type=DURATION,
    default="1d",
    help="How long a lock must have been unused; at least 1m.",
)
@as_json("Write one JSON object with the number of records.")
@shared
@click.pass_context
def purge(ctx: click.Context, prefix: str, older_than: float, json: bool) -> None:
    """Delete the records of locks under PREFIX that nobody has used for a while.

    The record of a released lock stays, so that its fence goes on growing. After a day the
    store's clock is past that fence, and the record may go.
    """
    from holdfast.cli.render import print_json

    with session_of(ctx).locks() as locks:
        dropped = locks.purge(prefix, older_than=older_than)
    if json:
        print_json({"dropped": dropped})
    else:
        click.echo(f"Deleted {dropped} record{'' if dropped == 1 else 's'}.")


@click.command()
@option("--print", is_flag=True, help="Change nothing; print what an administrator would run.")
@shared
@click.pass_context
def setup(ctx: click.Context, print: bool) -> None:
    """Create what the store needs: a file, a table, a script. May be repeated."""
    session = session_of(ctx)
    if print:
        with closing(open_source(session.place, {})) as store:
            click.echo(store.ddl(), nl=False)
        return
    with session.locks() as locks:
        locks.setup()
        click.echo(f"The {locks.facts.name} store at {session.shown_url} is ready.")
