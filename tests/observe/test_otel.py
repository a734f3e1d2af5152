"""Traces and metrics with the real SDK of OpenTelemetry."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import holdfast
from holdfast import AcquireTimeout, LeaseLost, aio
from holdfast.observe.metrics import METRICS
from holdfast.observe.otel import HoldfastInstrumentor, OpenTelemetrySink
from tests.helpers import memory_locks
from tests.observe import script


class World:
    """A sink on an SDK of its own, and what that has recorded."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.exporter = InMemorySpanExporter()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])
        self.sink = OpenTelemetrySink(
            ["jobs:", "db:"], tracer_provider=self.traces, meter_provider=self.meters
        )

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """The spans that have ended."""
        return [one for one in self.exporter.get_finished_spans() if one.name.endswith(name)]

    def sum(self, name: str, **labels: str) -> float:
        """The sum of a metric's points with these attributes; of a histogram, their count."""
        data = self.reader.get_metrics_data()
        assert data is not None
        points = [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]
        return sum(
            getattr(point, "value", getattr(point, "count", 0))
            for point in points
            if all(dict(point.attributes or {})[label] == value for label, value in labels.items())
        )


@pytest.fixture
def world() -> World:
    """A fresh one."""
    return World()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Those of a span."""
    return dict(span.attributes or {})


def test_the_sdk_has_what_happened(world: World) -> None:
    """Each metric has exactly the value that the script made: the same as in Prometheus."""
    with script.client(world.sink) as (locks, store):
        script.play(locks, store)
        assert world.sum("holdfast.held", lock="db:") == script.STILL_HELD
        assert world.sum("holdfast.attempts", outcome="timeout") == script.TIMED_OUT
        assert world.sum("holdfast.attempts", outcome="busy") == script.BUSY
        assert world.sum("holdfast.attempts", outcome="error") == script.ERRORS
        assert world.sum("holdfast.attempts", outcome="acquired") == script.ACQUIRED - 1
        assert world.sum("holdfast.attempts", outcome="taken") == 1
        assert world.sum("holdfast.wait", outcome="timeout") == script.TIMED_OUT
        assert world.sum("holdfast.skipped") == script.SKIPPED
        assert world.sum("holdfast.lost", lock="jobs:") == script.LOST
        assert world.sum("holdfast.waiting") == 0
        assert world.sum("holdfast.hold") == script.ACQUIRED - script.STILL_HELD
        assert world.sum("holdfast.request", error="Unavailable") == 1
        assert world.sum("holdfast.request", request="swap", error="") >= script.ACQUIRED
    assert world.sum("holdfast.held") == 0
    assert len(world.spans("acquire")) == (
        script.ACQUIRED + script.TIMED_OUT + script.BUSY + script.ERRORS
    )
    assert len(world.spans("hold")) == script.ACQUIRED


def test_instruments_are_as_in_the_table(world: World) -> None:
    """Names, units and descriptions are those of the one table."""
    with script.client(world.sink) as (locks, store):
        script.play(locks, store)
        data = world.reader.get_metrics_data()
    assert data is not None
    known = {metric.name: metric for metric in METRICS}
    made = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
    for metric in made:
        assert (metric.unit, metric.description) == (
            known[metric.name].unit, known[metric.name].help,
        )  # fmt: skip
    assert {metric.name for metric in made} >= {"holdfast.wait", "holdfast.held"}


def test_counters_begin_at_zero(world: World) -> None:
    """Exported to Prometheus, the first loss counts for `increase()` there too."""
    data: Any = world.reader.get_metrics_data()
    made = {m.name: m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    lost = {one.attributes["lock"]: one.value for one in made["holdfast.lost"].data.data_points}
    assert lost == {"jobs:": 0, "db:": 0, "other": 0}


def test_a_span_for_waiting_and_one_for_holding(world: World) -> None:
    """Both are children of the caller's span, and the second links to the first."""
    tracer = world.traces.get_tracer("test")
    with memory_locks(owner="me", sinks=[world.sink]) as locks:
        with tracer.start_as_current_span("work") as work:
            with locks.acquire("jobs:1", mode="shared") as lease:
                pass
    (acquire,), (hold,) = world.spans("acquire"), world.spans("hold")
    for span in (acquire, hold):
        assert span.parent is not None
        assert span.parent.span_id == work.get_span_context().span_id
        assert attributes(span) | {
            "holdfast.key": "jobs:1", "holdfast.owner": "me", "holdfast.mode": "shared",
            "holdfast.fence": lease.fence,
        } == attributes(span)  # fmt: skip
    assert [link.context.span_id for link in hold.links] == [acquire.context.span_id]
    assert attributes(acquire)["holdfast.outcome"] == "acquired"
    assert attributes(hold)["holdfast.ending"] == "released"
    assert (acquire.end_time or 0) <= (hold.end_time or 0)


def test_a_wait_in_vain_is_an_error_and_says_for_whom(world: World) -> None:
    """The span of an attempt that timed out has its status and the holders."""
    with memory_locks(owner="ann", sinks=[world.sink]) as locks, locks.acquire("k"):
        with pytest.raises(AcquireTimeout):
            locks.acquire("k", timeout=0.05)
        assert locks.try_acquire("k") is None
    failed, busy = [one for one in world.spans("acquire") if one.events]
    assert failed.status.status_code is StatusCode.ERROR
    assert attributes(failed)["error.type"] == "AcquireTimeout"
    assert dict(failed.events[0].attributes or {})["holdfast.holders"] == ("ann",)
    assert busy.status.status_code is StatusCode.UNSET
    assert attributes(busy)["holdfast.outcome"] == "busy"


def test_a_lost_lease_is_an_error(world: World) -> None:
    """The span of the lease ends with its loss."""
    with memory_locks(sinks=[world.sink]) as locks:
        lease = locks.acquire("k")
        locks.evict("k")
        with pytest.raises(LeaseLost):
            lease.renew()
    (hold,) = world.spans("hold")
    assert hold.status.status_code is StatusCode.ERROR
    assert attributes(hold)["holdfast.ending"] == "lost"


@pytest.mark.parametrize("how", ["share", "hand_over"])
def test_a_trace_goes_on_with_the_ticket(how: str) -> None:
    """What the worker does with the ticket belongs to the trace of the orchestrator."""
    here, there = World(), World()
    tracer = here.traces.get_tracer("orchestrator")
    name = f"memory://trace-{how}"
    with holdfast.connect(name, sinks=[here.sink]) as locks:
        with holdfast.connect(name, sinks=[there.sink]) as worker:
            with tracer.start_as_current_span("orchestrate") as span:
                lease = locks.acquire("k")
                ticket = lease.share() if how == "share" else lease.hand_over()
            (worker.join if how == "share" else worker.take)(ticket).release()
            lease.release()
    trace_id = span.get_span_context().trace_id
    assert {one.context.trace_id for one in there.spans()} == {trace_id}
    (hold,) = here.spans("hold")
    (acquire,) = there.spans("acquire")
    assert acquire.parent is not None
    assert acquire.parent.span_id == hold.context.span_id


def test_inside_of_another_trace_the_ticket_is_a_link() -> None:
    """A worker with a trace of its own stays in it, and links to where the ticket came from."""
    here, there = World(), World()
    with holdfast.connect("memory://trace-link", sinks=[here.sink]) as locks:
        with holdfast.connect("memory://trace-link", sinks=[there.sink]) as worker:
            ticket = locks.acquire("k").hand_over()
            with there.traces.get_tracer("worker").start_as_current_span("job") as job:
                worker.take(ticket).release()
    (acquire,) = there.spans("acquire")
    (hold,) = here.spans("hold")
    assert acquire.context.trace_id == job.get_span_context().trace_id
    assert [link.context.span_id for link in acquire.links] == [hold.context.span_id]


def test_tasks_keep_their_traces_apart(world: World) -> None:
    """Each task's spans are children of that task's span."""
    tracer = world.traces.get_tracer("test")

    async def work(locks: aio.Locks, name: str) -> None:
        with tracer.start_as_current_span(name):
            async with locks.acquire("k", owner=name):
                await asyncio.sleep(0.01)

    async def main() -> None:
        async with aio.connect("memory://", sinks=[world.sink]) as locks:
            await asyncio.gather(*(work(locks, name) for name in "abc"))

    asyncio.run(main())
    parents = {one.context.span_id: one.name for one in world.spans() if one.name in "abc"}
    spans = [one for one in world.spans() if one.name not in "abc"]
    assert len(spans) == 6
    for span in spans:
        assert span.parent is not None
        assert parents[span.parent.span_id] == attributes(span)["holdfast.owner"]


def test_the_instrumentor_gives_every_client_a_sink(world: World) -> None:
    """Clients from now on have it, until it is taken back."""
    instrumentor = HoldfastInstrumentor()
    instrumentor.instrument(tracer_provider=world.traces, meter_provider=world.meters)
    instrumentor.instrument()
    try:
        with memory_locks() as locks:
            locks.acquire("k").release()
    finally:
        HoldfastInstrumentor().uninstrument()
    with memory_locks() as locks:
        locks.acquire("k").release()
    assert len(world.spans("hold")) == 1
    assert list(instrumentor.instrumentation_dependencies()) == []


WORKER = """
import os, holdfast
with holdfast.connect(os.environ["PLACE"], owner="worker") as locks:
    with locks.take(os.environ["TICKET"]):
        pass
"""


def instrumented(script: Path, **environment: str) -> list[dict[str, Any]]:
    """The spans of a program that was run by `opentelemetry-instrument`, unchanged."""
    run = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
    ran = subprocess.run(
        [sys.executable, "-c", run, "--traces_exporter", "console", "--metrics_exporter", "none",
         "--logs_exporter", "none", sys.executable, str(script)],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    spans, rest, decoder = [], ran.stdout.strip(), json.JSONDecoder()
    while rest:
        span, end = decoder.raw_decode(rest)
        spans.append(span)
        rest = rest[end:].strip()
    return spans


def test_a_trace_goes_from_orchestrator_to_an_instrumented_worker(tmp_path: Path) -> None:
    """Auto-instrumentation needs no line in the worker's code, and the ticket carries the trace."""
    world, place = World(), f"sqlite:///{tmp_path / 'locks.db'}"
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    tracer = world.traces.get_tracer("orchestrator")
    with holdfast.connect(place, owner="orchestrator", sinks=[world.sink], ttl=60) as locks:
        with tracer.start_as_current_span("orchestrate") as around:
            ticket = locks.acquire("job").hand_over()
        spans = instrumented(script, PLACE=place, TICKET=ticket)
    (ours,) = world.spans("hold")
    theirs = {span["name"]: span for span in spans}
    trace_id = f"0x{around.get_span_context().trace_id:032x}"
    assert {span["context"]["trace_id"] for span in spans} == {trace_id}
    acquire, hold = theirs["holdfast acquire"], theirs["holdfast hold"]
    assert acquire["parent_id"] == f"0x{ours.context.span_id:016x}"
    assert acquire["attributes"]["holdfast.outcome"] == "taken"
    assert hold["attributes"]["holdfast.key"] == "job"
    assert hold["attributes"]["holdfast.owner"] == "worker"
    assert [link["context"]["span_id"] for link in hold["links"]] == [acquire["context"]["span_id"]]
    assert hold["attributes"]["holdfast.fence"] > attributes(ours)["holdfast.fence"]
    assert ticket not in str(spans)
