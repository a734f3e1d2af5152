"""The metrics of Holdfast: one table, and what each event adds to them.

Prometheus and OpenTelemetry both take their metrics from here, so a dashboard for one of them shows
the same with the other: `holdfast.wait` in seconds is `holdfast_wait_seconds` in Prometheus.

Metrics have no label for the key, of which there may be any number. Their label `lock` is a prefix
that the user has named, or what a function of the user's makes of the key.

A counter that first appears as 1 tells a server nothing: it cannot know what was before, so the
first loss would not count. Counters and gauges begin at 0 for every outcome as soon as the label is
known. Histograms appear with their first value: each of theirs would be a dozen series of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, Literal, Protocol, get_args

from msgspec import Struct

from holdfast.core import events
from holdfast.observe.log import logger

Label = Callable[[str], str]

# The value of `lock` for keys that no prefix fits, or once there are too many values.
OTHER = "other"
# A function that makes labels of keys may make so many different ones.
MOST_LABELS = 200
# The labels of so many keys are remembered.
MOST_REMEMBERED = 10_000

_WAITS = (0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
_HOLDS = (0.01, 0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
_REQUESTS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Metric(Struct, frozen=True, gc=False):
    """One metric: `name` as in OpenTelemetry, and `number`, its place in the table."""

    number: int
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()

    @property
    def unit(self) -> str:
        """The unit in OpenTelemetry: seconds, or a count of something."""
        return "s" if self.kind == "histogram" else "{%s}" % self.name.split(".")[-1]  # noqa: UP031

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus, as exporters of OpenTelemetry translate it."""
        ending = {"counter": "_total", "gauge": "", "histogram": "_seconds"}[self.kind]
        return self.name.replace(".", "_") + ending


METRICS: list[Metric] = []


def _metric(
    kind: Literal["counter", "gauge", "histogram"],
    name: str,
    labels: tuple[str, ...],
    help: str,
    buckets: tuple[float, ...] = (),
) -> Metric:
    METRICS.append(Metric(len(METRICS), f"holdfast.{name}", kind, labels, help, buckets))
    return METRICS[-1]


ATTEMPTS = _metric(
    "counter", "attempts", ("lock", "outcome"),
    "Attempts to get a lock that have ended: acquired, joined, taken, busy, timeout, cancelled or "
    "error.",
)  # fmt: skip
WAIT = _metric(
    "histogram", "wait", ("lock", "outcome"),
    "How long attempts to get a lock took, by how they ended.", _WAITS,
)  # fmt: skip
WAITING = _metric(
    "gauge", "waiting", ("lock",), "Attempts of this process that wait for somebody else."
)
HELD = _metric("gauge", "held", ("lock",), "Leases that this process holds.")
HOLD = _metric(
    "histogram", "hold", ("lock", "ending"),
    "How long leases were held, by how they ended: released, left, given back, abandoned, handed "
    "over, lost.", _HOLDS,
)  # fmt: skip
ENDED = _metric(
    "counter", "ended", ("lock", "ending"),
    "Leases that have ended: released, left, given back, abandoned, handed over, lost.",
)  # fmt: skip
IN_DANGER = _metric(
    "gauge", "in_danger", ("lock",), "Leases of this process that are in danger: renewals fail."
)
LOST = _metric("counter", "lost", ("lock",), "Leases that were lost.")
SKIPPED = _metric(
    "counter", "skipped", ("lock",), "Guarded functions that did not run: their lock was taken."
)
RENEWALS = _metric("counter", "renewals", ("lock",), "Renewals of leases.")
WANTED = _metric("counter", "wanted", ("lock",), "How often a lease became wanted by others.")
EVICTED = _metric("counter", "evicted", ("lock",), "Holders that this process evicted.")
STORE_ERRORS = _metric(
    "counter", "store.errors", ("doing",), "Failed requests to the store, by what was tried."
)
STORE_AWAY = _metric(
    "gauge",
    "store.away",
    (),
    "Clients of this process whose store cannot be reached now.",
)
STORE_ABSENCES = _metric("counter", "store.absences", (), "How often the store went away.")
REQUEST = _metric(
    "histogram", "request", ("request", "error"),
    "How long requests to the store took; error is empty if it answered.", _REQUESTS,
)  # fmt: skip
SINK_FAULTS = _metric(
    "counter", "sink.faults", ("sink", "fault"),
    "Events that a sink failed at (raised), was slow with, or missed (dropped).",
)  # fmt: skip


# The outcomes of attempts that end with a lease.
WITH_A_LEASE = get_args(events.How)
# Of each label that has few values, all of them.
_VALUES: dict[str, tuple[str, ...]] = {
    "outcome": (*WITH_A_LEASE, *get_args(events.Why)),
    "ending": (*get_args(events.Ending), "handed over", "lost"),
    "doing": get_args(events.Tried),
}


Observe = Callable[[tuple[str, ...], float], None]


class Recorder(Protocol):
    """Where measurements go. Called from any thread."""

    # Whether it finds by itself how many attempts and leases have ended and how many leases are
    # held, from the histograms of waits and holds. Counting them once more takes time.
    derives: bool

    def add(self, metric: Metric, labels: tuple[str, ...], amount: int) -> None:
        """Add to a counter or a gauge."""

    def observer(self, metric: Metric) -> Observe:
        """Returns a function that adds a value to a histogram."""


class _Handlers(dict[type, Callable[[Any], None]]):
    """What is done with each event: nothing, if it counts for nothing."""

    def __missing__(self, kind: type) -> Callable[[Any], None]:
        return _ignore


def _ignore(event: object) -> None:
    pass


class Measure:
    """The sink that makes measurements of events. One may serve any number of clients."""

    inline = True
    requests = True
    starts = False  # attempts are counted when they end

    def __init__(self, recorder: Recorder, prefixes: Iterable[str], function: Label | None) -> None:
        self._add = recorder.add
        self._derived = recorder.derives
        self._observe_wait = recorder.observer(WAIT)
        self._observe_hold = recorder.observer(HOLD)
        self._observe_request = recorder.observer(REQUEST)
        self._locks: list[str | None] = []  # the labels so far; None: of metrics without one
        self._waiting: set[int] = set()  # the attempts that count as waiting
        self._endangered: set[int] = set()  # those whose leases count as in danger
        self._handlers = _Handlers()
        self._handlers |= {
            events.Waiting: self._on_waiting,
            events.Acquired: self._on_acquired,
            events.GaveUp: self._on_gave_up,
            events.Skipped: self._on_skipped,
            events.Renewed: self._on_renewed,
            events.InDanger: self._on_danger,
            events.OutOfDanger: self._on_safe,
            events.Wanted: self._on_wanted,
            events.Released: self._on_released,
            events.HandedOver: self._on_handed_over,
            events.Lost: self._on_lost,
            events.Evicted: self._on_evicted,
            events.StoreTrouble: self._on_trouble,
            events.StoreAway: self._on_away,
            events.StoreBack: self._on_back,
            events.StoreAnswered: self._on_answered,
            events.SinkTrouble: self._on_sink_trouble,
        }
        self._begin(None)
        self._label = label_by(prefixes, function, self._begin)

    def __call__(self, event: events.Event) -> None:
        self._handlers[type(event)](event)

    def forget(self) -> None:
        """Start anew, because this is a forked child, which holds nothing."""
        self._waiting.clear()
        self._endangered.clear()
        locks, self._locks = self._locks, []
        for lock in locks:
            self._begin(lock)

    def _begin(self, lock: str | None) -> None:
        """Begin at 0 with all metrics of this label, or with those that have none."""
        self._locks.append(lock)
        values = _VALUES if lock is None else {**_VALUES, "lock": (lock,)}
        for metric in METRICS:
            if metric.kind == "histogram" or ("lock" in metric.labels) is (lock is None):
                continue
            if all(label in values for label in metric.labels):
                for labels in product(*(values[label] for label in metric.labels)):
                    self._add(metric, labels, 0)

    # --- attempts -----------------------------------------------------------------------------

    def _on_waiting(self, event: events.Waiting) -> None:
        if event.attempt and event.attempt not in self._waiting:
            self._waiting.add(event.attempt)
            self._add(WAITING, (self._label(event.key),), 1)

    def _on_acquired(self, event: events.Acquired) -> None:
        lock = self._label(event.key)
        if self._derived and event.attempt not in self._waiting:  # the usual case, made short
            self._observe_wait((lock, event.how), event.waited)
            return
        self._ended(lock, event.how, event.waited, event.attempt)
        if not self._derived:
            self._add(HELD, (lock,), 1)

    def _on_gave_up(self, event: events.GaveUp) -> None:
        self._ended(self._label(event.key), event.why, event.waited, event.attempt)

    def _ended(self, lock: str, outcome: str, waited: float, attempt: int) -> None:
        labels = (lock, outcome)
        self._observe_wait(labels, waited)
        if not self._derived:
            self._add(ATTEMPTS, labels, 1)
        if attempt in self._waiting:
            self._waiting.discard(attempt)
            self._add(WAITING, (lock,), -1)

    def _on_skipped(self, event: events.Skipped) -> None:
        self._add(SKIPPED, (self._label(event.key),), 1)

    # --- leases -------------------------------------------------------------------------------

    def _on_released(self, event: events.Released) -> None:
        lock = self._label(event.key)
        if self._derived and event.attempt not in self._endangered:  # the usual case, made short
            self._observe_hold((lock, event.how), event.held_for)
            return
        self._over(lock, event.how, event.held_for, event.attempt)

    def _on_handed_over(self, event: events.HandedOver) -> None:
        self._over(self._label(event.key), "handed over", event.held_for, event.attempt)

    def _on_lost(self, event: events.Lost) -> None:
        lock = self._label(event.key)
        self._over(lock, "lost", event.held_for, event.attempt)
        self._add(LOST, (lock,), 1)

    def _over(self, lock: str, ending: str, held_for: float, attempt: int) -> None:
        labels = (lock, ending)
        self._observe_hold(labels, held_for)
        if not self._derived:
            self._add(ENDED, labels, 1)
            self._add(HELD, (lock,), -1)
        if attempt in self._endangered:
            self._endangered.discard(attempt)
            self._add(IN_DANGER, (lock,), -1)

    def _on_renewed(self, event: events.Renewed) -> None:
        self._add(RENEWALS, (self._label(event.key),), 1)

    def _on_danger(self, event: events.InDanger) -> None:
        if event.attempt not in self._endangered:
            self._endangered.add(event.attempt)
            self._add(IN_DANGER, (self._label(event.key),), 1)

    def _on_safe(self, event: events.OutOfDanger) -> None:
        if event.attempt in self._endangered:
            self._endangered.discard(event.attempt)
            self._add(IN_DANGER, (self._label(event.key),), -1)

    def _on_wanted(self, event: events.Wanted) -> None:
        self._add(WANTED, (self._label(event.key),), 1)

    # --- the rest -----------------------------------------------------------------------------

    def _on_evicted(self, event: events.Evicted) -> None:
        self._add(EVICTED, (self._label(event.key),), len(event.holders))

    def _on_trouble(self, event: events.StoreTrouble) -> None:
        self._add(STORE_ERRORS, (event.doing,), 1)

    def _on_away(self, event: events.StoreAway) -> None:
        self._add(STORE_AWAY, (), 1)
        self._add(STORE_ABSENCES, (), 1)

    def _on_back(self, event: events.StoreBack) -> None:
        self._add(STORE_AWAY, (), -1)

    def _on_answered(self, event: events.StoreAnswered) -> None:
        self._observe_request((event.asked, event.error), event.took)

    def _on_sink_trouble(self, event: events.SinkTrouble) -> None:
        self._add(SINK_FAULTS, (event.sink, event.fault), 1)


def _nobody(label: str) -> None:
    """Is told of new labels where nobody wants to know."""


def label_by(
    prefixes: Iterable[str], function: Label | None, tell: Callable[[str], None] = _nobody
) -> Label:
    """Returns what makes the label `lock` of a key: the longest of these prefixes, or what the
    function says. Never more than `MOST_LABELS` different values; `tell` is called with each."""
    if function is not None:
        return _Remembered(_Capped(function, tell)).__getitem__
    if isinstance(prefixes, str):
        prefixes = [prefixes]
    longest_first = sorted(set(prefixes), key=len, reverse=True)
    for label in (*longest_first, OTHER) if longest_first else ("",):
        tell(label)
    if not longest_first:
        return lambda key: ""
    return _Remembered(
        lambda key: next((one for one in longest_first if key.startswith(one)), OTHER)
    ).__getitem__


class _Remembered(dict[str, str]):
    """The labels of the keys that were asked for. A look into a dict is faster than a search."""

    def __init__(self, function: Label) -> None:
        self._function = function

    def __missing__(self, key: str) -> str:
        if len(self) >= MOST_REMEMBERED:
            self.clear()
        label = self[key] = self._function(key)
        return label


class _Capped:
    """A function of the user's whose values stay few."""

    def __init__(self, function: Label, tell: Callable[[str], None]) -> None:
        self._function = function
        self._tell = tell
        self._known: set[str] = {OTHER}
        tell(OTHER)

    def __call__(self, key: str) -> str:
        try:
            label = str(self._function(key))
        except Exception:
            logger.exception("The function that makes labels of keys failed")
            return OTHER
        if label not in self._known:
            if len(self._known) > MOST_LABELS:
                return OTHER
            self._known.add(label)
            self._tell(label)
        return label
