"""The service's clock, as far as its replies tell it.

obstore shows no `Date` header. What it shows is an object's `Last-Modified`: the service's
time when the object was written, in whole seconds. Of an object that somebody wrote some
time ago that says only that it is later now. But of one that we have just written it is a
reading: taken after our write was sent, and before its answer came.

 1. Whoever is written into a record need not know the time. The object's `Last-Modified` is
    when they were written, so they run out a ttl after it, and their `expires_at` stays 0
    until somebody writes the record for another reason.
 2. Somebody has to know the time only to see that another has run out, or to start the fence
    of a new record. Then a small object is written and looked at, which is two requests
    (`probe_calls` in `protocol`). That reading serves for all keys while it is fresh.
 3. Where a reply tells the time by itself, that is a reading for nothing: an object that we
    wrote lately and meet again, and the error texts of Azure.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from holdfast.core.contract import Interval
from holdfast.core.records import SECOND, Micros
from holdfast.core.validity import RATE, Reading
from holdfast.runtime import clock

# How long a reading is carried forward, and by how much its doubt grows meanwhile.
FRESH: Micros = 10 * SECOND
GROWTH: Micros = 2 * FRESH // RATE + SECOND // 10
# A service that has no clock may show the beginning of all times.
FIRST_YEAR = 2000


class Grain(Struct, frozen=True):
    """How finely a service tells the time, and how far its machines may differ."""

    step: Micros = SECOND
    skew: Micros = SECOND

    @property
    def doubt(self) -> Micros:
        """How wide a reading may be by the time that it is used."""
        return self.step + self.skew + GROWTH

    def interval(self, shown: datetime) -> Interval | None:
        """What the time was when a service showed this; None: that is no time of its."""
        if shown.year < FIRST_YEAR:
            return None
        at = round(shown.timestamp() * SECOND)
        return Interval(at - self.skew // 2, at + self.step + self.skew // 2)

    def exact(self, shown: datetime) -> Interval:
        """The same for a time that is shown in full."""
        at = round(shown.timestamp() * SECOND)
        return Interval(at - self.skew // 2, at + self.skew // 2 + 1000)


class ServiceClock:
    """The last reading that is still of use."""

    def __init__(self, grain: Grain) -> None:
        self.grain = grain
        self._reading: Reading | None = None

    def learn(self, interval: Interval, sent: Micros, got: Micros) -> None:
        """The service showed this time between these two moments of ours."""
        if self.now() is None:
            self._reading = Reading(interval, sent, got)

    def now(self) -> Interval | None:
        """The service's time; None if it was not read lately."""
        reading, m = self._reading, clock.monotonic()
        if reading is None or m - reading.sent > FRESH:
            return None
        return reading.at(m)
