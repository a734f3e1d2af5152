"""Metrics for Prometheus: a real scrape after a scripted run, and what the labels are."""

from __future__ import annotations

import json
import multiprocessing
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

import holdfast
from holdfast import events
from holdfast.observe.metrics import METRICS, MOST_LABELS, OTHER, label_by
from holdfast.observe.prometheus import PrometheusSink
from tests.helpers import memory_locks
from tests.observe import script

ROOT = Path(__file__).parent.parent.parent
DASHBOARD = ROOT / "examples" / "grafana-dashboard.json"


class Scrape:
    """What a scrape returned."""

    def __init__(self, text: str) -> None:
        self.samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def sum(self, name: str, **labels: str) -> float:
        """The sum of all samples with this name and these labels, as a query has it."""
        return sum(
            sample.value
            for sample in self.samples
            if sample.name == name
            and all(sample.labels[label] == value for label, value in labels.items())
        )

    def names(self) -> set[str]:
        """All names."""
        return {sample.name for sample in self.samples}


@pytest.fixture
def registry() -> CollectorRegistry:
    """A registry of this test's own."""
    return CollectorRegistry()


@pytest.fixture
def address(registry: CollectorRegistry) -> Iterator[str]:
    """A real server for scrapes of that registry."""
    server, thread = start_http_server(0, "127.0.0.1", registry=registry)
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()
    thread.join()


def scrape(address: str) -> Scrape:
    """Scrape, as a server does."""
    with urlopen(address, timeout=30) as answer:
        return Scrape(answer.read().decode())


def test_a_scrape_says_what_happened(registry: CollectorRegistry, address: str) -> None:
    """Each metric has exactly the value that the script made."""
    sink = PrometheusSink(["jobs:", "db:"], registry=registry)
    with script.client(sink) as (locks, store):
        kept = script.play(locks, store)
        now = scrape(address)
        assert kept.held
    attempts = "holdfast_attempts_total"
    assert now.sum(attempts, outcome="acquired") + now.sum(attempts, outcome="taken") == (
        script.ACQUIRED
    )
    assert now.sum(attempts, outcome="timeout") == script.TIMED_OUT
    assert now.sum(attempts, outcome="timeout", lock="db:") == script.TIMED_OUT
    assert now.sum(attempts, outcome="busy") == script.BUSY
    assert now.sum(attempts, outcome="error") == script.ERRORS
    assert now.sum("holdfast_wait_seconds_count", outcome="timeout") == script.TIMED_OUT
    assert now.sum("holdfast_wait_seconds_sum", outcome="timeout") >= script.TIMED_OUT * 0.05
    assert now.sum("holdfast_skipped_total", lock="db:") == script.SKIPPED
    assert now.sum("holdfast_lost_total") == script.LOST
    assert now.sum("holdfast_lost_total", lock="jobs:") == script.LOST
    assert now.sum("holdfast_evicted_total") == 1
    assert now.sum("holdfast_renewals_total") == 1
    assert now.sum("holdfast_held") == now.sum("holdfast_held", lock="db:") == script.STILL_HELD
    assert now.sum("holdfast_waiting") == 0
    ended = script.ACQUIRED - script.STILL_HELD
    assert now.sum("holdfast_hold_seconds_count") == ended
    assert now.sum("holdfast_hold_seconds_count", ending="handed over") == 1
    assert now.sum("holdfast_hold_seconds_count", ending="lost") == script.LOST
    assert now.sum("holdfast_request_seconds_count", error="Unavailable") == 1
    assert now.sum("holdfast_request_seconds_count", request="swap", error="") >= script.ACQUIRED
    assert scrape(address).sum("holdfast_held") == 0  # the client was closed


def test_waiters_are_counted_while_they_wait(registry: CollectorRegistry, address: str) -> None:
    """The gauge of waiters goes up with the first event of a wait, and down with its end."""
    sink = PrometheusSink(registry=registry)
    seen: list[float] = []

    def look(event: events.Event) -> None:
        if isinstance(event, events.Waiting):
            seen.append(scrape(address).sum("holdfast_waiting"))

    look.inline = True  # type: ignore[attr-defined]
    with memory_locks(sinks=[sink, look]) as locks, locks.acquire("k"):
        assert locks.try_acquire("k") is None
    assert seen == [1]
    assert scrape(address).sum("holdfast_waiting") == 0


def test_danger_counts_until_it_is_over(registry: CollectorRegistry, address: str) -> None:
    """A lease in danger is counted once, until it is safe or has ended."""
    sink = PrometheusSink(registry=registry)
    for attempt in (1, 2):
        sink(events.Acquired("k", "me", 1, "exclusive", attempt=attempt))
        sink(events.InDanger("k", "me", 1, 1.0, attempt))
        sink(events.InDanger("k", "me", 1, 0.5, attempt))
    assert scrape(address).sum("holdfast_in_danger") == 2
    sink(events.OutOfDanger("k", "me", 1, 1))
    assert scrape(address).sum("holdfast_in_danger") == 1
    sink(events.Lost("k", "me", 1, "burnt", 2.0, 2))
    assert scrape(address).sum("holdfast_in_danger") == 0
    sink(events.StoreTrouble("k", "down", "renew"))
    sink(events.Wanted("k", "me", 1, (), 1))
    sink(events.SinkTrouble("slow_one", "dropped"))
    sink(events.StoreAway("down"))
    now = scrape(address)
    assert now.sum("holdfast_store_away") == now.sum("holdfast_store_absences_total") == 1
    sink(events.StoreBack(2.0))
    assert scrape(address).sum("holdfast_store_away") == 0
    assert now.sum("holdfast_store_errors_total", doing="renew") == 1
    assert now.sum("holdfast_wanted_total") == 1
    assert now.sum("holdfast_sink_faults_total", sink="slow_one", fault="dropped") == 1


def test_buckets_are_cumulative(registry: CollectorRegistry, address: str) -> None:
    """Each bucket counts what is at most its bound, as histogram_quantile needs it."""
    sink = PrometheusSink(registry=registry)
    for waited in (0.001, 0.0011, 2.0, 1e6):
        sink(events.GaveUp("k", "me", "timeout", 0, waited, "AcquireTimeout"))
    now = scrape(address)
    for bound, count in [("0.001", 1), ("0.005", 2), ("1.0", 2), ("5.0", 3), ("+Inf", 4)]:
        assert now.sum("holdfast_wait_seconds_bucket", le=bound) == count, bound
    assert now.sum("holdfast_wait_seconds_count") == 4


def test_every_event_that_counts_is_counted() -> None:
    """No event is left out of the metrics by mistake."""
    sink = PrometheusSink(registry=None)
    assert set(events.__all__) - {"Event", "Party", "Started"} == {
        kind.__name__ for kind in sink._handlers
    }


@pytest.mark.parametrize(
    ("key", "label"),
    [("a:1", "a:"), ("a:b:1", "a:b:"), ("b:1", OTHER), ("a", OTHER)],
)
def test_labels_by_prefix(key: str, label: str) -> None:
    """The longest prefix that fits is the label, and there is one for the rest."""
    assert label_by(["a:", "a:b:"], None)(key) == label
    assert label_by((), None)(key) == ""


def test_labels_by_function_stay_few() -> None:
    """A function that makes a label of every key cannot make endless series."""
    label = label_by((), lambda key: key)
    made = {label(str(number)) for number in range(10_000)}
    assert len(made) == MOST_LABELS + 1
    assert OTHER in made


def test_a_child_starts_from_zero(registry: CollectorRegistry) -> None:
    """What the parent holds and did is not reported by a forked child as well."""
    sink = PrometheusSink(registry=registry)
    with memory_locks(sinks=[sink]) as locks, locks.acquire("k"):
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=lambda: queue.put(_values(sink)))
        child.start()
        assert not any(queue.get(timeout=60))
        child.join(60)
        assert any(_values(sink))


def test_everything_that_can_be_counted_begins_at_zero(
    registry: CollectorRegistry, address: str
) -> None:
    """The first loss counts for `increase()`: the series is there before it, with 0."""
    sink = PrometheusSink(["a:"], registry=registry)
    now = scrape(address)
    counted = {metric.prometheus_name for metric in METRICS if metric.kind != "histogram"}
    assert counted - now.names() == {"holdfast_sink_faults_total"}  # whose, nobody knows yet
    assert not any(sample.value for sample in now.samples)
    assert {one.labels["lock"] for one in now.samples if "lock" in one.labels} == {"a:", OTHER}
    sink(events.Lost("a:1", "me", 1, "burnt"))
    assert scrape(address).sum("holdfast_lost_total", lock="a:") == 1
    by_function = PrometheusSink(label=str.upper, registry=None)
    by_function(events.Acquired("k", "me", 1, "exclusive"))
    families = {family.name: family for family in by_function.collect()}
    lost = {one.labels["lock"]: one.value for one in families["holdfast_lost"].samples}
    assert lost == {OTHER: 0, "K": 0}


def _values(sink: PrometheusSink) -> list[Any]:
    return [sample.value for family in sink.collect() for sample in family.samples]


def test_the_dashboard_asks_for_what_there_is() -> None:
    """Every metric and label in the dashboard exists, and every metric is in it."""
    dashboard = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert asked
    known = {metric.prometheus_name: metric for metric in METRICS}
    used: set[str] = set()
    for query in asked:
        for name, matchers in re.findall(r"(holdfast_\w+)(?:\{([^}]*)\})?", query):
            base = re.sub(r"_(bucket|count|sum)$", "", name)
            assert base in known, query
            used.add(base)
            for label in re.findall(r"(\w+)\s*=~?", matchers):
                assert label in (*known[base].labels, "job", "instance", "le"), query
    assert used == set(known)


def test_the_docs_name_every_metric() -> None:
    """The page of metrics is complete."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    for metric in METRICS:
        assert f"`{metric.prometheus_name}`" in page, metric
        for label in metric.labels:
            assert f"`{label}`" in page


def test_it_says_what_to_install() -> None:
    """Without prometheus_client, the import says which extra to install."""
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import holdfast\n"
        "try:\n    import holdfast.observe.prometheus\n"
        "except holdfast.MissingDriver as exc:\n    print(exc)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "holdfast[prometheus]" in ran.stdout


def test_one_sink_serves_many_clients(registry: CollectorRegistry) -> None:
    """The numbers of two clients are added up, and both faces take the same sink."""
    import asyncio

    sink = PrometheusSink(registry=registry)
    with memory_locks(sinks=[sink]) as locks:
        locks.acquire("k").release()

    async def main() -> None:
        async with holdfast.aio.connect("memory://", sinks=[sink]) as locks:
            async with locks.acquire("k"):
                pass

    asyncio.run(main())
    assert (
        registry.get_sample_value("holdfast_attempts_total", {"lock": "", "outcome": "acquired"})
        == 2
    )
