"""The clocks of this machine, in microseconds.

`monotonic` goes on while the machine sleeps where the system allows (Linux): a lease must
not seem young because a laptop's lid was closed for an hour.
"""

from __future__ import annotations

import time

from holdfast.core.records import Micros

_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic() -> Micros:
    """A clock that never jumps, for this machine only."""
    return time.clock_gettime_ns(_CLOCK) // 1000


def answer(_effect: object) -> Micros:
    """`monotonic`, in the form in which drivers answer effects: it is asked for that often."""
    return time.clock_gettime_ns(_CLOCK) // 1000


def wall() -> Micros:
    """The time of day since 1970. It may jump."""
    return time.time_ns() // 1000
