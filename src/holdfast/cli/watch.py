"""`holdfast watch`: shows locks as they change."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal

import click
from msgspec import Struct

from holdfast.api.info import LockInfo
from holdfast.api.locks import Locks
from holdfast.cli import codes
from holdfast.cli.app import session_of
from holdfast.cli.params import DURATION, PREFIX, as_json, option, shared
from holdfast.cli.session import tell
from holdfast.cli.signals import Interrupted, SignalQueue, signals_blocked
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.observe.log import printable

SHORTEST_INTERVAL_S = 0.05


class Change(Struct, frozen=True):
    """One lock that changed. `freed` means: nobody holds it or waits for it."""

    at: datetime
    change: Literal["held", "changed", "freed"]
    lock: LockInfo


@click.command()
@click.argument("prefix", type=PREFIX, default="")
@option("-i", "--interval", type=DURATION, default="1s", help="How often to read the store.")
@as_json("Write one JSON object per change, each on its line, beginning with what is held now.")
@shared
@click.pass_context
def watch(ctx: click.Context, prefix: str, interval: float, json: bool) -> int:
    """Watch the locks whose keys start with PREFIX, until Ctrl-C.

    It shows a table on a terminal, and writes one line per change elsewhere.
    """
    from holdfast.cli import render

    interval = max(interval, SHORTEST_INTERVAL_S)
    try:
        with SignalQueue(), session_of(ctx).locks() as locks:
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
    """Yields what changes, without end."""
    watching = Watching()
    in_trouble = False
    while True:
        try:
            yield from watching.look(locks.list(prefix))
            in_trouble = False
        except (Unavailable, OutcomeUnknown) as trouble:
            if not in_trouble:
                tell(f"{trouble} Trying again.")
            in_trouble = True
        time.sleep(interval)


class Known(Struct, frozen=True, gc=False):
    """What is remembered of a lock. It is small, because there may be very many."""

    fence: int
    parties: int  # a digest of who held it and who waited
    look: int  # in which it was last seen


class Watching:
    """Finds what changed from one listing of the locks to the next."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._looks = 0

    def look(self, found: Iterable[LockInfo]) -> Iterator[Change]:
        """Yields what changed since the last look. If `found` fails half way, the locks that it
        did not come to stay as they were: only a whole listing shows that a lock is gone."""
        self._looks += 1
        at = datetime.now(UTC)
        for lock in found:
            before = self._known.get(lock.key)
            now = Known(lock.fence, hash(_parties(lock)), self._looks)
            self._known[lock.key] = now
            if before is None:
                yield Change(at, "held", lock)
            elif before.parties != now.parties:
                yield Change(at, "changed", lock)
        for key in [key for key, known in self._known.items() if known.look != self._looks]:
            yield Change(at, "freed", LockInfo(key, self._known.pop(key).fence, (), ()))


def _parties(lock: LockInfo) -> tuple[Any, ...]:
    """Returns what counts as a change when it differs. Renewals do not."""
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
        with signals_blocked():
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
        found = locks.list(prefix)
        shown = list(islice(found, max(1, out.height - 5)))
        rest = sum(1 for _ in found)
    except (Unavailable, OutcomeUnknown) as trouble:
        return Group(plain(title, "bold"), plain(f"{trouble} Trying again.", "red"))
    more = f"… and {rest} more" if rest else ""
    return Group(plain(title, "bold"), lock_table(shown, out.width), plain(more, "dim"))
