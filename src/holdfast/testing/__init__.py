"""For us and for users: conformance cases for stores, faults on purpose, the simulator."""

from holdfast.testing.chaos import ChaosStore

__all__ = ["ChaosStore"]
