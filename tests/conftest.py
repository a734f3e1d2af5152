"""For all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The machine may be busy: how long an example takes says nothing about our code.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")
