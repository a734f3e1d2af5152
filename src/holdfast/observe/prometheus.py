"""Metrics for Prometheus: `pip install 'holdfast[prometheus]'`.

    from holdfast.observe.prometheus import PrometheusSink

    metrics = PrometheusSink(prefixes=["pipeline:", "db:"])
    locks = holdfast.connect(sinks=[metrics])

The numbers are kept here and handed to `prometheus_client` when it is asked for them: its own
counters and histograms would make an uncontended pair several times as slow. For the same reason
events are only put aside when they happen, and counted when there are many, or at a scrape.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.core.events import Event
from holdfast.extras import needed
from holdfast.observe.metrics import (
    ATTEMPTS,
    ENDED,
    HELD,
    HOLD,
    METRICS,
    WAIT,
    WITH_A_LEASE,
    Label,
    Measure,
    Metric,
    Observe,
)
from holdfast.runtime import fork_hooks

with needed("holdfast.observe.prometheus", "prometheus"):
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

# So many events are put aside before they are counted.
MOST_ASIDE = 256

_Labels = tuple[str, ...]
_FAMILIES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class Numbers:
    """The values of all metrics, by their labels. Not safe for threads by itself."""

    derives = True

    def __init__(self) -> None:
        # Of each metric, by its labels: a list of its number, or of the sum of a histogram and how
        # many values fell into each bucket; the last bucket is for larger ones.
        self._cells: list[dict[_Labels, list[float]]] = [{} for _ in METRICS]

    def add(self, metric: Metric, labels: _Labels, amount: int) -> None:
        """Add to a counter or a gauge."""
        self._cells[metric.number].setdefault(labels, [0])[0] += amount

    def observer(self, metric: Metric) -> Observe:
        """Returns a function that adds a value to a histogram. It is called four times for an
        uncontended pair, so it has at hand what it needs."""
        cells, bounds = self._cells[metric.number], metric.buckets
        cell_of, bucket_of = cells.get, bisect_left

        def observe(labels: _Labels, value: float) -> None:
            cell = cell_of(labels)
            if cell is None:
                cell = cells[labels] = [0] * (len(bounds) + 2)
            cell[0] += value
            cell[bucket_of(bounds, value) + 1] += 1

        return observe

    def snapshot(self) -> list[list[tuple[_Labels, float, list[float]]]]:
        """Returns, of each metric, the labels, values or sums, and counts at one moment."""
        taken = [
            [(labels, total, counts) for labels, (total, *counts) in cells.items()]
            for cells in self._cells
        ]
        for metric, numbers in self._derived().items():
            taken[metric.number] = [(labels, number, []) for labels, number in numbers.items()]
        return taken

    def _derived(self) -> dict[Metric, Counter[_Labels]]:
        """Returns the numbers that follow from the histograms of waits and holds."""
        derived: dict[Metric, Counter[_Labels]] = {
            metric: Counter(dict.fromkeys(self._cells[metric.number], 0))
            for metric in (ATTEMPTS, HELD, ENDED)
        }
        for labels, (_, *counts) in self._cells[WAIT.number].items():
            lock, outcome = labels
            derived[ATTEMPTS][labels] = number = int(sum(counts))
            derived[HELD][lock,] += number * (outcome in WITH_A_LEASE)
        for labels, (_, *counts) in self._cells[HOLD.number].items():
            lock, _ = labels
            derived[ENDED][labels] = number = int(sum(counts))
            derived[HELD][lock,] -= number
        return derived

    def forget(self) -> None:
        """Start anew, because this is a forked child."""
        for cells in self._cells:
            cells.clear()


class PrometheusSink(Measure):
    """A sink that is a collector of `prometheus_client`. One serves any number of clients.

    prefixes  what the label `lock` may be: of each key, the longest prefix of these that fits
    label     instead of prefixes, a function from a key to its label
    registry  where it is registered; None: nowhere
    """

    never_raises = True

    def __init__(
        self,
        prefixes: Iterable[str] = (),
        *,
        label: Label | None = None,
        registry: CollectorRegistry | None = REGISTRY,
    ) -> None:
        self._numbers = Numbers()
        super().__init__(self._numbers, prefixes, label)
        self._aside: deque[Event] = deque()
        self._counting = threading.Lock()
        _sinks.add(self)
        if registry is not None:
            registry.register(self)

    def __call__(self, event: Event) -> None:
        self._aside.append(event)
        if len(self._aside) >= MOST_ASIDE and not self._counting.locked():
            with self._counting:
                self._count()

    def _count(self) -> None:
        """Count the events that were put aside, in their order."""
        handlers, take = self._handlers, self._aside.popleft
        for _ in range(len(self._aside)):
            event = take()
            handlers[type(event)](event)

    def describe(self) -> Iterator[Any]:
        """Yields the metrics without values. `prometheus_client` asks when it is registered."""
        for metric in METRICS:
            yield _family(metric)

    def collect(self) -> Iterator[Any]:
        """Yields the metrics. `prometheus_client` asks at every scrape."""
        with self._counting:
            self._count()
            taken = self._numbers.snapshot()
        for metric, values in zip(METRICS, taken, strict=True):
            family = _family(metric)
            for labels, value, counts in values:
                if metric.kind == "histogram":
                    family.add_metric(labels, buckets=_cumulative(metric, counts), sum_value=value)
                else:
                    family.add_metric(labels, value)
            yield family

    def forget(self) -> None:
        self._numbers.forget()
        super().forget()
        self._aside.clear()
        self._counting = threading.Lock()


def _family(metric: Metric) -> Any:
    return _FAMILIES[metric.kind](metric.prometheus_name, metric.help, labels=metric.labels)


def _cumulative(metric: Metric, counts: list[float]) -> list[tuple[str, float]]:
    """Returns buckets as Prometheus wants them: each counts all values up to its bound."""
    bounds = [*map(str, metric.buckets), "+Inf"]
    return [(bound, sum(counts[: at + 1])) for at, bound in enumerate(bounds)]


_sinks: weakref.WeakSet[PrometheusSink] = weakref.WeakSet()


@fork_hooks.in_child
def _in_child() -> None:
    """A child holds nothing, and what its parent did is the parent's to report."""
    for sink in list(_sinks):
        sink.forget()
