"""By when a store must have answered, in the terms of its driver.

`by` is a time on this process's own clock in microseconds. Drivers count in seconds from now.
"""

from __future__ import annotations

from holdfast.core.records import SECOND, Micros
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.runtime import clock

# No driver can wait until `NEVER`.
LONGEST_S = 24 * 3600.0


def seconds_left(by: Micros) -> float:
    """Returns how many seconds are left; 0 or less if the time is over."""
    return min((by - clock.monotonic()) / SECOND, LONGEST_S)


def seconds_to_send(by: Micros, at_most: float = LONGEST_S) -> float:
    """Returns how many seconds a request may take that is about to be sent. Raises `Unavailable` if
    its time is over."""
    left = seconds_left(by)
    if left <= 0:
        raise not_sent()
    return min(left, at_most)


def not_sent() -> Unavailable:
    """Returns what to raise when the time was over before the request could be sent."""
    return Unavailable("The store could not be asked in time, and nothing was sent.")


def unanswered(*, writing: bool = True) -> OutcomeUnknown | Unavailable:
    """Returns what to raise when a request was sent and no answer came in time. One that only reads
    has surely changed nothing."""
    trouble = (OutcomeUnknown if writing else Unavailable)("The store did not answer in time.")
    trouble.__cause__ = TimeoutError("no answer")  # so that it is known to come from the store
    return trouble
