"""`holdfast doctor`: checks whether a store can keep locks, from here, with these permissions."""

from __future__ import annotations

import platform
import secrets
import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import msgspec
from msgspec import Struct

from holdfast import __version__
from holdfast.api.locks import Locks
from holdfast.cli import codes
from holdfast.cli.app import session_of
from holdfast.cli.params import as_json, option, shared
from holdfast.cli.session import Session
from holdfast.core.contract import Facts, Interval, Swapped
from holdfast.core.records import SECOND, Record
from holdfast.errors import HoldfastError, Misconfigured, OutcomeUnknown, Unavailable
from holdfast.runtime import clock
from holdfast.stores.base import Store
from holdfast.stores.url import redact

SCRATCH = "holdfast:doctor:"
NOT_COMPARED = (
    "The store overwrote a record that had changed, although it was told to "
    "compare: two parties could hold the same lock. For a blob store without "
    "conditional writes there is ?protocol=last-writer, as best effort."
)
# A difference worth a warning, though no lock depends on it.
MUCH_OFFSET_S = 5.0


class Check(Struct, frozen=True):
    """One thing that was tried."""

    name: str
    ok: bool
    detail: str = ""
    trips_ms: Trips | None = None


class Report(Struct, frozen=True):
    """All that was found out."""

    ok: bool
    holdfast: str
    python: str
    platform: str
    url: str
    checks: tuple[Check, ...]
    clock_offset_s: float | None = None  # the store's clock minus this machine's
    facts: Facts | None = None


class Trips(Struct, frozen=True):
    """How long round trips took, in milliseconds."""

    least: float
    median: float
    most: float


@click.command()
@option("--trips", type=click.IntRange(1, 10_000), default=20, help="How many round trips to time.")
@as_json("Write one JSON object.")
@shared
@click.pass_context
def doctor(ctx: click.Context, trips: int, json: bool) -> int:
    """Examine the store: round trips, clock, permissions, and what it guarantees.

    It uses a scratch key of its own, and removes it.
    """
    from holdfast.cli.render import print_json

    report = examine(session_of(ctx), trips)
    if json:
        print_json(report)
    else:
        _print(report)
    return codes.OK if report.ok else codes.STORE


def examine(session: Session, trips: int) -> Report:
    """Try all that locks need. Returns the report."""
    started = time.perf_counter()
    try:
        store = session.store()
    except HoldfastError as trouble:
        return _report(session, [Check("connect", False, _words(trouble))])
    try:
        examination = Examination(store, trips)
        connect = examination.connect(started)
        if not connect.ok:
            return _report(session, [connect], facts=store.facts)
        checks = [connect, *examination.checks()]
        return _report(session, checks, examination.clock_offset(), store.facts)
    finally:
        store.close()


def _report(
    session: Session,
    checks: list[Check],
    clock_offset_s: float | None = None,
    facts: Facts | None = None,
) -> Report:
    return Report(
        all(check.ok for check in checks),
        __version__,
        platform.python_version(),
        platform.platform(),
        session.shown_url,
        tuple(checks),
        clock_offset_s,
        facts,
    )


class Examination:
    """The checks on one store."""

    def __init__(self, store: Store, trips: int) -> None:
        self._store = store
        self._trips = trips
        self._key = SCRATCH + secrets.token_hex(8)
        self._version: Any = None
        self._stale: Any = None

    def connect(self, started: float) -> Check:
        """Check that the store answers: most stores connect only when they are first used."""
        try:
            self._load()
        except (Unavailable, OutcomeUnknown) as trouble:
            return Check("connect", False, _words(trouble))
        except HoldfastError:  # it answered; `checks` reports what it refused
            pass
        return Check("connect", True, trips_ms=_trips([_ms_since(started)]))

    def checks(self) -> list[Check]:
        """Read, write, compare, list, acquire and release a lease, and clean up, in this order."""
        made = [
            self._try("read", self._load, self._trips),
            self._try("write", self._swap, self._trips),
        ]
        if self._version is not None:  # else there is nothing to compare with
            made.append(self._try("compare", self._compare, 1))
        made += [self._try("list", self._scan, 1), self._try("lease", self._lease, 1)]
        if self._version is not None:
            made.append(self._try("delete", self._delete, 1))
        return made

    def clock_offset(self) -> float | None:
        """Returns by how much the store's clock is ahead of ours; None if it has none or fails."""
        sent = clock.wall()
        try:
            now = self._store.load(self._key).now
        except HoldfastError:
            return None
        return None if now is None else _middle(now) - (sent + clock.wall()) / 2 / SECOND

    def _try(self, name: str, action: Callable[[], str], times: int) -> Check:
        took, detail = [], ""
        try:
            for _ in range(times):
                started = time.perf_counter()
                detail = action()
                took.append(_ms_since(started))
        except HoldfastError as trouble:
            return Check(name, False, _words(trouble))
        return Check(name, True, detail, _trips(took))

    def _load(self) -> str:
        self._store.load(self._key)
        return ""

    def _swap(self) -> str:
        at = clock.wall()
        outcome = self._store.swap(self._key, self._version, Record(fence=at, updated_at=at))
        if not isinstance(outcome, Swapped):
            raise OutcomeUnknown("Somebody else wrote to the scratch key.")
        self._stale, self._version = self._version, outcome.version
        return ""

    def _compare(self) -> str:
        """Check that the store refuses a write that names another version than the current one."""
        for version in {None, self._stale}:
            outcome = self._store.swap(self._key, version, Record())
            if isinstance(outcome, Swapped):
                self._version = outcome.version
                if self._store.facts.linearizable:
                    raise Misconfigured(NOT_COMPARED)
                return "it writes over what is there"
        return "" if self._store.facts.linearizable else "best effort"

    def _scan(self) -> str:
        page = self._store.scan(SCRATCH, None, 1)
        return "" if page.entries or self._version is None else "the scratch key was not listed"

    def _lease(self) -> str:
        locks = Locks(self._store, ttl=60.0, store_patience=1.0)
        key = f"{self._key}:lease"
        with locks.acquire(key, timeout=5.0) as lease:
            lease.renew()
        self._forget(key)
        return "acquire, renew, release"

    def _delete(self) -> str:
        self._forget(self._key)
        return ""

    def _forget(self, key: str) -> None:
        entry = self._store.load(key)
        if entry.version is not None:
            self._store.swap(key, entry.version, None)


def _middle(now: Interval) -> float:
    return (now.earliest + now.latest) / 2 / SECOND


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def _trips(took: list[float]) -> Trips:
    least, median, most = min(took), statistics.median(took), max(took)
    return Trips(round(least, 3), round(median, 3), round(most, 3))


def _words(trouble: HoldfastError) -> str:
    return redact(" ".join(str(trouble).split()))


# --- for people ---------------------------------------------------------------------------


def _print(report: Report) -> None:
    from holdfast.cli.render import console, new_table, plain

    out = console()
    out.print(plain(*verdict(report)))
    out.print(plain(f"holdfast {report.holdfast}, Python {report.python}, {report.platform}"))
    out.print(plain(report.url, "bold"))
    table = new_table("Check", "", "Median", "Least", "Most", "")
    for check in report.checks:
        mark = plain("ok", "green") if check.ok else plain("FAILED", "bold red")
        table.add_row(check.name, mark, *_times(check.trips_ms), plain(check.detail))
    out.print(table)
    if report.clock_offset_s is not None or all(check.ok for check in report.checks):
        out.print(plain(_clock_words(report.clock_offset_s)))  # else nothing is known of it
    if report.facts is not None:
        out.print(_facts_table(report.facts))


def verdict(report: Report) -> tuple[str, str]:
    """Returns what to make of it all in a sentence, and its style."""
    failed = [check for check in report.checks if not check.ok]
    if failed:
        names = ", ".join(check.name for check in failed)
        advice = failed[0].detail.rstrip(".")
        return f"This store cannot keep locks from here ({names} failed): {advice}.", "bold red"
    facts = report.facts
    if facts is not None and facts.name == "null":
        return "Locking is switched off: everybody gets every lock.", "bold yellow"
    if facts is not None and not facts.linearizable:
        return "This store keeps locks, but only as best effort: see below.", "bold yellow"
    if facts is not None and facts.reach == "process":
        return "This store keeps locks within one process only.", "bold yellow"
    return "This store keeps locks, and all is well.", "bold green"


def _times(trips: Trips | None) -> tuple[str, ...]:
    if trips is None:
        return "", "", ""
    return f"{trips.median:.2f} ms", f"{trips.least:.2f} ms", f"{trips.most:.2f} ms"


def _clock_words(offset: float | None) -> str:
    if offset is None:
        return "Clock: the store has none that can be read."
    words = f"Clock: the store's is {abs(offset):.3f} s {'ahead of' if offset > 0 else 'behind'}"
    advice = " Check both." if abs(offset) > MUCH_OFFSET_S else ""
    return f"{words} this machine's; only the store's counts.{advice}"


def _facts_table(facts: Facts) -> Any:
    from holdfast.cli.render import new_table, plain

    table = new_table("Fact", "")
    for name, value in msgspec.to_builtins(facts).items():
        if name == "caveats":
            continue
        table.add_row(name.replace("_", " "), plain(_word(value)))
    for caveat in facts.caveats:
        table.add_row("mind", plain(caveat, "yellow"))
    return table


def _word(value: Any) -> str:
    if value is None:
        return "no limit"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
