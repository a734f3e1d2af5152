"""Traces and metrics for OpenTelemetry: `pip install 'holdfast[otel]'`. Needs its API only.

    from holdfast.observe.otel import OpenTelemetrySink

    locks = holdfast.connect(sinks=[OpenTelemetrySink()])

Auto-instrumentation (`opentelemetry-instrument`) finds `HoldfastInstrumentor` by itself, and then
every client has such a sink.

Each attempt is a span `holdfast acquire`, a child of the caller's span. Each lease is a span
`holdfast hold` with a link to the attempt that got it. A ticket carries the context of the lease's
span: whoever uses the ticket goes on in the same trace, or, inside of another trace, links to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from holdfast import __version__
from holdfast.core import events
from holdfast.extras import needed
from holdfast.observe.metrics import METRICS, Label, Measure, Metric, Observe
from holdfast.observe.sinks import add_default, remove_default

with needed("holdfast.observe.otel", "otel"):
    from opentelemetry import context as contexts
    from opentelemetry import metrics, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

NAME = "holdfast"
_propagator = TraceContextTextMapPropagator()


class Instruments:
    """Records measurements with the instruments of a meter."""

    derives = False

    def __init__(self, meter: Any) -> None:
        self._instruments = [_instrument(meter, metric) for metric in METRICS]

    def add(self, metric: Metric, labels: tuple[str, ...], amount: int) -> None:
        """Add to a counter or a gauge."""
        self._instruments[metric.number].add(amount, _attributes(metric, labels))

    def observer(self, metric: Metric) -> Observe:
        """Returns a function that adds a value to a histogram."""
        record = self._instruments[metric.number].record
        return lambda labels, value: record(value, _attributes(metric, labels))


def _instrument(meter: Any, metric: Metric) -> Any:
    described = {"unit": metric.unit, "description": metric.help}
    if metric.kind == "counter":
        return meter.create_counter(metric.name, **described)
    if metric.kind == "gauge":
        return meter.create_up_down_counter(metric.name, **described)
    return meter.create_histogram(
        metric.name, explicit_bucket_boundaries_advisory=metric.buckets, **described
    )


def _attributes(metric: Metric, labels: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(metric.labels, labels, strict=True))


class Spans:
    """Makes spans of events. They are opened and ended in the threads in which things happen."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._acquiring: dict[int, Any] = {}  # by the number of the attempt
        self._holding: dict[int, Any] = {}

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.Started():
                self._start(event)
            case events.Waiting(news=True, attempt=attempt) if attempt in self._acquiring:
                self._acquiring[attempt].add_event("waiting", _waiting(event))
            case events.Acquired():
                self._acquired(event)
            case events.GaveUp():
                self._gave_up(event)
            case events.Released(attempt=attempt, how=how):
                self._end(attempt, how)
            case events.HandedOver(attempt=attempt):
                self._end(attempt, "handed over")
            case events.Lost(attempt=attempt, why=why):
                self._end(attempt, "lost", why)
            case events.InDanger(attempt=attempt, remaining=remaining):
                self._note(attempt, "in danger", {"holdfast.remaining": remaining})
            case events.OutOfDanger(attempt=attempt):
                self._note(attempt, "out of danger", {})
            case events.Wanted(attempt=attempt, waiters=waiters):
                self._note(attempt, "wanted", {"holdfast.waiters": [one.owner for one in waiters]})

    def trace_of(self, attempt: int) -> str:
        """Returns the context of a lease's span, to be carried by its ticket."""
        span = self._holding.get(attempt)
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, None if span is None else trace.set_span_in_context(span))
        return carrier.get("traceparent", "")

    def _start(self, event: events.Started) -> None:
        around, links = None, []
        if event.trace:
            sent = _propagator.extract({"traceparent": event.trace}, contexts.Context())
            if trace.get_current_span().get_span_context().is_valid:
                links.append(trace.Link(trace.get_current_span(sent).get_span_context()))
            else:
                around = sent
        self._acquiring[event.attempt] = self._tracer.start_span(
            "holdfast acquire",
            context=around,
            links=links,
            attributes={
                "holdfast.key": event.key,
                "holdfast.owner": event.owner,
                "holdfast.mode": event.mode,
                "holdfast.attempt": event.attempt,
            },
        )

    def _acquired(self, event: events.Acquired) -> None:
        attributes = {
            "holdfast.key": event.key,
            "holdfast.owner": event.owner,
            "holdfast.mode": event.mode,
            "holdfast.attempt": event.attempt,
            "holdfast.fence": event.fence,
        }
        links = []
        parent: Any = None
        acquiring = self._acquiring.pop(event.attempt, None)
        if acquiring is not None:
            links.append(trace.Link(acquiring.get_span_context()))
            parent = _beside(acquiring)
            acquiring.set_attributes({**attributes, "holdfast.outcome": event.how})
            acquiring.end()
        self._holding[event.attempt] = self._tracer.start_span(
            "holdfast hold", context=parent, links=links, attributes=attributes
        )

    def _gave_up(self, event: events.GaveUp) -> None:
        span = self._acquiring.pop(event.attempt, None)
        if span is None:
            return
        span.set_attribute("holdfast.outcome", event.why)
        if event.why in ("timeout", "error"):
            span.set_attribute("error.type", event.error)
            span.set_status(trace.StatusCode.ERROR, f"Gave up: {event.why}")
        span.end()

    def _end(self, attempt: int, how: str, error: str = "") -> None:
        span = self._holding.pop(attempt, None)
        if span is None:
            return
        span.set_attribute("holdfast.ending", how)
        if error:
            span.set_attribute("error.type", "LeaseLost")
            span.set_status(trace.StatusCode.ERROR, error)
        span.end()

    def _note(self, attempt: int, name: str, attributes: dict[str, Any]) -> None:
        span = self._holding.get(attempt)
        if span is not None:
            span.add_event(name, attributes)


def _beside(span: Any) -> Any:
    """Returns a context whose span is the parent of this one, so that the next becomes its
    sibling; None, the current one, where the parent is not known."""
    parent = getattr(span, "parent", None)
    if parent is None or not parent.is_valid:
        return None
    return trace.set_span_in_context(trace.NonRecordingSpan(parent))


def _waiting(event: events.Waiting) -> dict[str, Any]:
    return {
        "holdfast.holders": [one.owner for one in event.holders],
        "holdfast.ahead": len(event.ahead) + event.more,
    }


class OpenTelemetrySink(Measure):
    """A sink that makes spans and measurements. One serves any number of clients.

    prefixes, label  what the attribute `lock` of metrics is, as with `PrometheusSink`
    tracer_provider  by default the global one
    meter_provider   by default the global one
    """

    starts = True

    def __init__(
        self,
        prefixes: Iterable[str] = (),
        *,
        label: Label | None = None,
        tracer_provider: Any = None,
        meter_provider: Any = None,
    ) -> None:
        meter = metrics.get_meter(NAME, __version__, meter_provider=meter_provider)
        super().__init__(Instruments(meter), prefixes, label)
        self._spans = Spans(trace.get_tracer(NAME, __version__, tracer_provider=tracer_provider))
        self.trace_of = self._spans.trace_of

    def __call__(self, event: events.Event) -> None:
        self._spans(event)
        super().__call__(event)


class HoldfastInstrumentor:
    """What auto-instrumentation looks for: it gives every client of this process a sink."""

    _sink: OpenTelemetrySink | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Nothing but Holdfast itself."""
        return ()

    def instrument(self, **options: Any) -> None:
        """Give every client that is made from now on a sink. May be repeated."""
        if HoldfastInstrumentor._sink is not None:
            return
        known = ("prefixes", "label", "tracer_provider", "meter_provider")
        HoldfastInstrumentor._sink = OpenTelemetrySink(
            **{name: options[name] for name in known if name in options}
        )
        add_default(HoldfastInstrumentor._sink)

    def uninstrument(self, **options: Any) -> None:
        """No client that is made from now on has a sink by itself."""
        if HoldfastInstrumentor._sink is not None:
            remove_default(HoldfastInstrumentor._sink)
        HoldfastInstrumentor._sink = None
