"""The service's time, from the `Date` header of its replies.

The header counts whole seconds: the second that it shows began less than a second ago. It comes
from one of many machines, whose clocks are synchronised, but not perfectly: `margin` is how far
one of them may be off.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from holdfast.core.contract import Interval
from holdfast.core.records import SECOND, Micros


class HeaderClock:
    """Reads headers. All replies of one second have the same header, which is parsed once."""

    def __init__(self, margin: Micros) -> None:
        self.margin = margin
        self._last: tuple[str, Interval | None] = ("", None)

    @property
    def doubt(self) -> Micros:
        """Returns how far apart the ends of a reading are."""
        return SECOND + 2 * self.margin

    @property
    def last(self) -> Interval | None:
        """Returns the last reading."""
        return self._last[1]

    def read(self, headers: Mapping[str, str]) -> Interval | None:
        """Returns the time in a reply's headers; None if there is none that can be used."""
        text = headers.get("date", "")
        seen, now = self._last
        if text != seen:
            now = self._parse(text)
            self._last = text, now
        return now

    def _parse(self, text: str) -> Interval | None:
        try:
            second = int(parsedate_to_datetime(text).timestamp()) * SECOND
        except (TypeError, ValueError, OverflowError):  # missing, or no date
            return None
        return Interval(second - self.margin, second + SECOND - 1 + self.margin)
