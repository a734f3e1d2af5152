"""The dashboard's queries, evaluated by a real Prometheus that scraped a scripted run."""

from __future__ import annotations

import json
import re
import subprocess
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from holdfast import events
from holdfast.core.events import Event
from holdfast.observe.metrics import HOLD, REQUEST, WAIT, Metric
from holdfast.observe.prometheus import PrometheusSink
from tests.engines.base import require
from tests.engines.prometheus import Prometheus
from tests.observe import busy_script
from tests.observe.test_prometheus import DASHBOARD, ROOT

PATIENCE_S = 60.0
GOT = ("acquired", "joined", "taken")
# The only sample of a query without labels.
ALL = ""

Expected = dict[str, float]


class Run:
    """Two rounds of the script, as Prometheus and as an independent listener saw them."""

    def __init__(self, server: Prometheus, address: str) -> None:
        self.server = server
        self.address = address
        self.began = 0.0  # the times of scrapes: before the rounds,
        self.between = 0.0  # between them,
        self.ended = 0.0  # and after them
        self.rounds: list[list[Event]] = []

    def ask(self, query: str, since: float, lock: str = ".*") -> Expected:
        """What a query of the dashboard returns over this time, by the first of its labels that
        tells its samples apart. A rate is returned as an increase."""
        window_ms = round((self.ended - since) * 1000) + 1
        text = query.replace("$lock", lock)
        text = re.sub(r"\$__(rate_interval|range)", f"{window_ms}ms", text)
        times = window_ms / 1000 if "rate(" in query and "quantile" not in query else 1
        found = self.server.query(text, self.ended)
        return {":".join(labels.values()): value * times for labels, value in found}

    def scraped(self, after: float) -> float:
        """The time of the first scrape after this."""
        ends_at = time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < ends_at, "Prometheus does not scrape"
            for _, at in self.server.query("min(timestamp(holdfast_held))"):
                if at > after:
                    return at
            time.sleep(0.1)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Play two rounds, with a scrape before, between and after them."""
    require(Prometheus)
    registry = CollectorRegistry()
    server, thread = start_http_server(0, "127.0.0.1", registry=registry)
    try:
        target = f"127.0.0.1:{server.server_port}"
        sink = PrometheusSink(["jobs:", "db:"], registry=registry)
        with Prometheus(target) as prometheus:
            run = Run(prometheus, f"http://{target}/metrics")
            run.began = run.scraped(0)
            with busy_script.played(sink) as seen:
                pass
            run.rounds.append(seen)
            run.between = run.scraped(time.time())
            with busy_script.played(sink) as seen:
                run.ended = run.scraped(time.time())
                run.rounds.append(list(seen))
                yield run
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def many(seen: list[Event], kind: type, label: str = "", lock: str = "") -> Expected:
    """How many events of a kind there were, by a field."""
    found: Counter[str] = Counter()
    for one in seen:
        if type(one) is kind and one.key.startswith(lock):
            found[getattr(one, label) if label else ALL] += 1
    return {name: float(number) for name, number in found.items()}


def attempts(seen: list[Event], lock: str) -> Expected:
    """How attempts ended."""
    return many(seen, events.Acquired, "how", lock) | many(seen, events.GaveUp, "why", lock)


def endings(seen: list[Event], lock: str) -> Expected:
    """How leases ended."""
    return {
        **many(seen, events.Released, "how", lock),
        "handed over": many(seen, events.HandedOver, lock=lock).get(ALL, 0),
        "lost": many(seen, events.Lost, lock=lock).get(ALL, 0),
    }


def evicted(seen: list[Event], lock: str) -> Expected:
    """How many holders were evicted."""
    out = [one for one in seen if type(one) is events.Evicted and one.key.startswith(lock)]
    return {ALL: float(sum(len(one.holders) for one in out))}


COUNTED: dict[str, Callable[[list[Event], str], Expected]] = {
    "Lost": lambda seen, lock: many(seen, events.Lost, lock=lock),
    "Skipped": lambda seen, lock: many(seen, events.Skipped, lock=lock),
    "Attempts, by outcome {{outcome}}": attempts,
    "How leases ended {{ending}}": endings,
    "Renewed, wanted, evicted renewed": lambda seen, lock: many(seen, events.Renewed, lock=lock),
    "Renewed, wanted, evicted wanted": lambda seen, lock: many(seen, events.Wanted, lock=lock),
    "Renewed, wanted, evicted evicted": evicted,
    "Store errors {{doing}}": lambda seen, lock: many(seen, events.StoreTrouble, "doing"),
    "Store errors went away": lambda seen, lock: many(seen, events.StoreAway),
}
NOW: dict[str, Expected] = {
    "Held now": {ALL: busy_script.HELD},
    "Waiting now": {ALL: busy_script.WAITING},
    "In danger now": {ALL: busy_script.IN_DANGER},
    "Stores away now": {ALL: 1},
    "Held and waiting held {{lock}}": {"db:": 1, "jobs:": 1},
    "Held and waiting waiting {{lock}}": {"db:": 1},
}
SINKS = "Sinks that failed {{sink}}: {{fault}}"


def quantile(metric: Metric, values: list[float], part: float) -> float:
    """What `histogram_quantile` makes of these values."""
    bounds = metric.buckets
    counts = Counter(bisect_left(bounds, value) for value in values)
    rank, before = part * len(values), 0
    for at in sorted(counts):
        if before + counts[at] >= rank:
            break
        before += counts[at]
    if at == len(bounds):
        return bounds[-1]
    low = bounds[at - 1] if at else 0.0
    return low + (bounds[at] - low) * (rank - before) / counts[at]


def waits(seen: list[Event]) -> dict[str, list[float]]:
    """How long attempts took that got a lease."""
    return {ALL: [one.waited for one in seen if type(one) is events.Acquired]}


def holds(seen: list[Event]) -> dict[str, list[float]]:
    """How long leases were held."""
    ends = (events.Released, events.HandedOver, events.Lost)
    return {ALL: [one.held_for for one in seen if isinstance(one, ends)]}


def requests(seen: list[Event]) -> dict[str, list[float]]:
    """How long requests took that were answered, by their kind."""
    found: dict[str, list[float]] = {}
    for one in seen:
        if type(one) is events.StoreAnswered and not one.error:
            found.setdefault(one.asked, []).append(one.took)
    return found


TOOK: dict[str, tuple[Metric, Callable[[list[Event]], dict[str, list[float]]]]] = {
    "Wait until acquired": (WAIT, waits),
    "Time held": (HOLD, holds),
    "Requests to the store": (REQUEST, requests),
}


def queries() -> dict[str, str]:
    """The queries of the dashboard, by their panel and legend."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return {
        f"{panel['title']} {target['legendFormat']}".strip(): target["expr"]
        for panel in panels
        for target in panel["targets"]
    }


QUERIES = queries()
QUANTILES = [name for name in QUERIES if name.split(" p")[0] in TOOK]


def test_every_query_is_compared() -> None:
    """No query of the dashboard is left out below."""
    assert {*COUNTED, *NOW, *QUANTILES, SINKS} == set(QUERIES)


def test_the_script_did_what_it_says(run: Run) -> None:
    """The numbers in the script are those of its events. (The first round has ended altogether.)"""
    seen = run.rounds[1]
    assert attempts(seen, "")["acquired"] == busy_script.ACQUIRED
    assert attempts(seen, "")["timeout"] == busy_script.TIMED_OUT
    assert many(seen, events.Skipped) == {ALL: busy_script.SKIPPED}
    assert endings(seen, "")["lost"] == busy_script.LOST


@pytest.mark.parametrize("lock", ["", "jobs:", "db:"])
@pytest.mark.parametrize("name", COUNTED)
def test_counted(run: Run, name: str, lock: str) -> None:
    """What happened in the last round, and, also what happened for the first time, in both."""
    chosen = lock or ".*"
    both = [*run.rounds[0], *run.rounds[1]]
    for seen, since in ((run.rounds[1], run.between), (both, run.began)):
        expected = {name: value for name, value in COUNTED[name](seen, lock).items() if value}
        found = run.ask(QUERIES[name], since, chosen)
        assert {name: value for name, value in found.items() if value} == pytest.approx(
            expected, rel=0.01
        )


@pytest.mark.parametrize("name", NOW)
def test_now(run: Run, name: str) -> None:
    """What is held, waited for and in trouble at the end."""
    found = run.ask(QUERIES[name], run.between)
    assert {name: value for name, value in found.items() if value} == NOW[name]


@pytest.mark.parametrize("name", QUANTILES)
def test_took(run: Run, name: str) -> None:
    """The quantiles are those of what a listener measured."""
    panel, percent = re.fullmatch(r"(.*) p(\d\d)(?: .*)?", name).groups()  # type: ignore[union-attr]
    metric, measured = TOOK[panel]
    part = {"50": 0.5, "95": 0.95, "99": 0.99}[percent]
    found = run.ask(QUERIES[name], run.between)
    expected = {
        label: quantile(metric, values, part)
        for label, values in measured(run.rounds[1]).items()
    }  # fmt: skip
    assert found == pytest.approx(expected, rel=0.01)


def test_sinks_that_failed(run: Run) -> None:
    """Whatever failed since the program was started."""
    found = run.ask(QUERIES[SINKS], run.began)
    assert found == {"raised:broken": 2 * busy_script.SKIPPED}


def test_the_locks_to_choose_from(run: Run) -> None:
    """The dashboard's variable offers the prefixes."""
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    (variable,) = [one for one in variables if one["name"] == "lock"]
    metric = re.fullmatch(r"label_values\((\w+), lock\)", variable["query"])[1]  # type: ignore[index]
    found = run.server.ask("label/lock/values", **{"match[]": metric})
    assert found == ["db:", "jobs:", "other"]


def test_the_queries_of_the_docs(run: Run) -> None:
    """Each is understood, and returns something after such a run."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    block = page.split("Some questions, as queries:")[1].split("\n\n`examples")[0]
    asked = [line.strip() for line in block.splitlines() if "holdfast_" in line]
    assert len(asked) == 3
    for query in asked:
        assert run.server.query(query, run.ended), query


def test_the_text_of_a_scrape_is_well_formed(run: Run) -> None:
    """Prometheus' own tool has nothing to say against it."""
    with urlopen(run.address, timeout=30) as answer:
        text = answer.read()
    checked: Any = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60
    )
    assert (checked.returncode, checked.stderr.decode()) == (0, "")
