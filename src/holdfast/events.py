"""The events of a client, for `connect(sinks=[...])`. Each class says what its fields mean.

from holdfast import events

def tell(event: events.Event) -> None:
    if isinstance(event, events.Lost):
        print(f"lost {event.key}: {event.why}")

locks = holdfast.connect(sinks=[tell])
"""

from holdfast.core.events import (
    Acquired,
    Event,
    Evicted,
    GaveUp,
    HandedOver,
    InDanger,
    Lost,
    OutOfDanger,
    Party,
    Released,
    Renewed,
    SinkTrouble,
    Skipped,
    Started,
    StoreAnswered,
    StoreAway,
    StoreBack,
    StoreTrouble,
    Waiting,
    Wanted,
)

__all__ = [
    "Acquired",
    "Event",
    "Evicted",
    "GaveUp",
    "HandedOver",
    "InDanger",
    "Lost",
    "OutOfDanger",
    "Party",
    "Released",
    "Renewed",
    "SinkTrouble",
    "Skipped",
    "Started",
    "StoreAnswered",
    "StoreAway",
    "StoreBack",
    "StoreTrouble",
    "Waiting",
    "Wanted",
]
