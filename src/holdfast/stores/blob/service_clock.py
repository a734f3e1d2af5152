"""The service's clock, as far as its replies tell it.

obstore does not show the `Date` header. It shows an object's `Last-Modified`: the service's time
when the object was written, in whole seconds. For an object that was written some time ago, that
says only that it is later now. For an object that we have just written, it is a reading of the
clock: taken after our write was sent, and before its answer came.

 1. A client that writes a party into a record need not know the time. The party runs out a ttl
    after the object's `Last-Modified`. Its `expires_at` stays 0 until the record is written for
    another reason.
 2. A client needs the time only to see that somebody else has run out, or to start the fence of
    a new record. Then it writes a small object and looks at it, which is two requests
    (`_probe_calls` in `protocol`). That reading serves all keys while it is fresh.
 3. Some replies tell the time anyway, at no cost: an object that we wrote lately and read again,
    and the error texts of Azure.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from holdfast.core.contract import Interval
from holdfast.core.records import SECOND, Micros
from holdfast.core.validity import RATE, Reading
from holdfast.runtime import clock

# How long a reading is used, and by how much its doubt grows meanwhile.
FRESH: Micros = 10 * SECOND
GROWTH: Micros = 2 * FRESH // RATE + SECOND // 10
# A service that has no clock may show 1970.
FIRST_YEAR = 2000


class Precision(Struct, frozen=True):
    """How finely a service tells the time, and how far its machines may differ."""

    step: Micros = SECOND
    skew: Micros = SECOND

    @property
    def doubt(self) -> Micros:
        """Returns how wide a reading may be by the time that it is used."""
        return self.step + self.skew + GROWTH

    def interval(self, shown: datetime) -> Interval | None:
        """Returns what the time was when a service showed this; None if it cannot be a time."""
        if shown.year < FIRST_YEAR:
            return None
        at = round(shown.timestamp() * SECOND)
        return Interval(at - self.skew // 2, at + self.step + self.skew // 2)

    def exact(self, shown: datetime) -> Interval:
        """The same for a time with fractions of a second."""
        at = round(shown.timestamp() * SECOND)
        return Interval(at - self.skew // 2, at + self.skew // 2 + 1000)


class ServiceClock:
    """The last reading that is still of use."""

    def __init__(self, precision: Precision) -> None:
        self.precision = precision
        self._reading: Reading | None = None

    def learn(self, interval: Interval, sent: Micros, got: Micros) -> None:
        """Remember that the service showed this time between these two moments of our clock."""
        if self.now() is None:
            self._reading = Reading(interval, sent, got)

    def now(self) -> Interval | None:
        """Returns the service's time; None if it was not read lately."""
        reading, m = self._reading, clock.monotonic()
        if reading is None or m - reading.sent > FRESH:
            return None
        return reading.at(m)
