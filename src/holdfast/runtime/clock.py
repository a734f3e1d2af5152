"""The clocks of this machine, in microseconds.

`monotonic` goes on while the machine sleeps, where the system has such a clock (Linux): a lease
must not seem young because a laptop's lid was closed for an hour.
"""

from __future__ import annotations

import time

from holdfast.core.records import Micros

_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# Asked for by name at every call: `holdfast.testing.hand_clock` puts others here.
_read = time.clock_gettime_ns
_wall = time.time_ns


def monotonic(_effect: object = None) -> Micros:
    """Returns the time on a clock of this machine that never jumps. Also answers `Now`."""
    return _read(_CLOCK) // 1000


def wall() -> Micros:
    """Returns the time of day since 1970. It may jump."""
    return _wall() // 1000
