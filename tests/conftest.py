"""For all tests."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# The machine may be busy: how long an example takes says nothing about our code.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would the programs
# that they start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
