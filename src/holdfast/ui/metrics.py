"""What the page has seen, as metrics: all locks of the store, not only those of one process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from holdfast.observe.metrics import label_by
from holdfast.observe.prometheus import PrometheusSink
from holdfast.ui.seen import Json


class SeenCollector:
    """Gauges of all locks that the page sees, by the label `lock`."""

    def __init__(self, seen: Callable[[], Iterable[Json]], prefixes: Iterable[str]) -> None:
        self._seen = seen
        self._label = label_by(prefixes, None)

    def collect(self) -> Iterator[Any]:
        """Yields the gauges. `prometheus_client` asks at every scrape."""
        now = time.time()
        held: Counter[str] = Counter()
        waiting: Counter[str] = Counter()
        longest: dict[str, float] = {}
        for lock in self._seen():
            label = self._label(lock["key"])
            held[label] += len(lock["holders"])
            waiting[label] += len(lock["waiters"])
            waits = [now - one["since"] for one in lock["waiters"]]
            longest[label] = max([longest.get(label, 0.0), *waits])
        yield _gauge("holdfast_seen_held", "Holders of all locks in the store.", held)
        yield _gauge("holdfast_seen_waiting", "Waiters in the queues of all locks.", waiting)
        about = "How long the longest of those who wait now has been waiting."
        yield _gauge("holdfast_seen_longest_wait_seconds", about, longest)


def _gauge(name: str, about: str, values: dict[str, Any]) -> Any:
    gauge = GaugeMetricFamily(name, about, labels=["lock"])
    for label, value in values.items():
        gauge.add_metric([label], max(0, value))
    return gauge


class PageMetrics:
    """The metrics of the page: what it sees, and what its own requests to the store took."""

    def __init__(self, prefixes: Iterable[str]) -> None:
        self._prefixes = list(prefixes)
        self._registry = CollectorRegistry()
        self.sink = PrometheusSink(self._prefixes, registry=self._registry)

    def watch(self, seen: Callable[[], Iterable[Json]]) -> None:
        """Have these locks counted at every scrape."""
        self._registry.register(SeenCollector(seen, self._prefixes))

    def __call__(self) -> tuple[bytes, str]:
        """Returns the text for a scrape, and its type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST
