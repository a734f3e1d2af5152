"""The kinds of store that are modelled, as data: what the real ones promise and do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from holdfast.core.contract import ClockSource, Facts
from holdfast.core.records import SECOND, Micros

# dated: a reply tells the time only where it matters, and reads it after the record; else an
# object tells when it was written.
ClockKind = Literal["exact", "seconds", "patchy", "dated", "none"]


@dataclass(frozen=True)
class StoreKind:
    """One kind of store."""

    name: str
    like: str
    clock: ClockKind = "exact"
    compares: bool = True  # a swap compares the version; without, the last writer wins
    scripted: bool = False
    amends: bool = False  # looks and writes under its own lock
    replicated: bool = False  # by asynchronous replicas: a failover loses the last writes
    push: bool = True  # waiters are told of a change; without, they poll
    batch: int = 1

    @property
    def doubt(self) -> Micros:
        """How far off its clock may be."""
        return SECOND if self.clock in ("seconds", "patchy", "dated") else 0

    @property
    def always_tells_time(self) -> bool:
        """Whether a reply has a reading of its clock wherever somebody's expiry depends on it."""
        return self.clock in ("exact", "seconds", "dated")

    @property
    def facts(self) -> Facts:
        """The same as a store would say it to the core."""
        source: ClockSource = "store" if self.always_tells_time else "observed"
        return Facts(
            name=self.name,
            linearizable=self.compares and not self.replicated,
            clock=source,
            clock_doubt=self.doubt,
            clock_always=self.clock != "dated",
            reach="network",
            wakeup="push" if self.push else "poll",
            durable=True,
            scripted=self.scripted,
            amends=self.amends,
            batch=self.batch,
        )


KINDS: Final = {
    kind.name: kind
    for kind in (
        StoreKind("server", "SQL: linearizable, with a clock of its own", batch=8),
        StoreKind("amending", "SQL, files: holds a record still", amends=True, batch=8),
        StoreKind("scripted", "Redis: whole commands in one trip", scripted=True, batch=8),
        StoreKind("observed", "no usable clock: a silent holder is watched", "none", batch=4),
        StoreKind("seconds", "a Date header: whole seconds", "seconds", push=False, batch=8),
        StoreKind("patchy", "a Date header that is missing at times", "patchy", push=False),
        StoreKind("dated", "a blob: Last-Modified of what was written", "dated", push=False),
        StoreKind("last-writer", "a blob store without conditions", compares=False, push=False),
        StoreKind("failover", "SQL with asynchronous replicas", replicated=True, batch=8),
        StoreKind("scripted-failover", "Redis with replicas", scripted=True, replicated=True),
    )
}
