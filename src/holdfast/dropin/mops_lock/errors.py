"""The errors of mops' leases, which are also Holdfast's."""

from __future__ import annotations

from holdfast.errors import LeaseLost, Refused


class CannotMaintainLease(Refused, ValueError):
    """There is no lease here that could be maintained."""


class LeaseLostError(LeaseLost, ValueError):
    """The lease is somebody else's by now, or nobody's: stop the work that it protects."""
