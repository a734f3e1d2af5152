"""`holdfast watch`: locks as they change hands."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import click
from msgspec import Struct

from holdfast.api.info import LockInfo
from holdfast.api.locks import Locks
from holdfast.cli import codes
from holdfast.cli.app import connected
from holdfast.cli.params import DURATION, PREFIX, as_json, option, shared
from holdfast.cli.session import tell
from holdfast.cli.signals import Inbox, Interrupted, held_back
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.observe.log import printable

SHORTEST_INTERVAL_S = 0.05

Snapshot = dict[str, LockInfo]


class Change(Struct, frozen=True):
    """One lock that is no longer as it was. `freed`: nobody holds it or waits for it."""

    at: datetime
    change: Literal["held", "changed", "freed"]
    lock: LockInfo


@click.command()
@click.argument("prefix", type=PREFIX, default="")
@option("-i", "--interval", type=DURATION, default="1s", help="How often to look.")
@as_json("One JSON object per line and change, beginning with what is held now.")
@shared
@click.pass_context
def watch(ctx: click.Context, prefix: str, interval: float, json: bool) -> int:
    """Watch the locks whose keys start with PREFIX, until Ctrl-C.

    On a terminal as a table, elsewhere as one line per change.
    """
    from holdfast.cli import render

    interval = max(interval, SHORTEST_INTERVAL_S)
    try:
        with Inbox(), connected(ctx).locks() as locks:
            if json:
                for change in changes(locks, prefix, interval):
                    render.print_json(change)
            elif (out := render.console()).is_terminal:
                _show_table(locks, prefix, interval, out)
            else:
                for change in changes(locks, prefix, interval):
                    click.echo(_line(change))
    except Interrupted as ended:
        return codes.OK if ended.signum == signal.SIGINT else codes.SIGNALLED + ended.signum
    return codes.OK


def changes(locks: Locks, prefix: str, interval: float) -> Iterator[Change]:
    """What changes, for ever."""
    before: Snapshot = {}
    in_trouble = False
    while True:
        try:
            now = _look(locks, prefix)
        except (Unavailable, OutcomeUnknown) as trouble:
            if not in_trouble:
                tell(f"{trouble} Trying again.")
            in_trouble = True
        else:
            in_trouble = False
            yield from differences(before, now)
            before = now
        time.sleep(interval)


def differences(before: Snapshot, now: Snapshot) -> Iterator[Change]:
    """From one look to the next."""
    at = datetime.now(UTC)
    for key, lock in now.items():
        if key not in before:
            yield Change(at, "held", lock)
        elif _parties(lock) != _parties(before[key]):
            yield Change(at, "changed", lock)
    for key, lock in before.items():
        if key not in now:
            yield Change(at, "freed", LockInfo(key, lock.fence, (), ()))


def _look(locks: Locks, prefix: str) -> Snapshot:
    return {lock.key: lock for lock in locks.list(prefix)}


def _parties(lock: LockInfo) -> tuple[Any, ...]:
    """What must differ for a lock to count as changed: not its renewals."""
    holders = tuple((holder.fence, holder.offered) for holder in lock.holders)
    waiters = tuple((waiter.owner, waiter.since) for waiter in lock.waiters)
    return holders, waiters, lock.fault


def _line(change: Change) -> str:
    from holdfast.cli.render import holder_line, state_of, time_of

    lock = change.lock
    who = "; ".join(map(holder_line, lock.holders))
    return printable(f"{time_of(change.at)} {lock.key}: {state_of(lock, who)}")


def _show_table(locks: Locks, prefix: str, interval: float, out: Any) -> None:
    from rich.live import Live

    live = Live(console=out, screen=True, auto_refresh=False)
    try:
        with held_back():
            live.start()
        while True:
            live.update(_screen(locks, prefix, out), refresh=True)
            time.sleep(interval)
    finally:
        live.stop()


def _screen(locks: Locks, prefix: str, out: Any) -> Any:
    from rich.console import Group

    from holdfast.cli.render import lock_table, plain, time_of

    which = f"locks under {prefix!r}" if prefix else "locks"
    title = f"{time_of(datetime.now(UTC))}  {which}"
    try:
        found = list(_look(locks, prefix).values())
    except (Unavailable, OutcomeUnknown) as trouble:
        return Group(plain(title, "bold"), plain(f"{trouble} Trying again.", "red"))
    room = max(1, out.height - 5)
    more = f"… and {len(found) - room} more" if len(found) > room else ""
    table = lock_table(found[:room], out.width)
    return Group(plain(title, "bold"), table, plain(more, "dim"))
