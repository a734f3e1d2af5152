"""Tools for testing stores and code that uses locks, for us and for users.

Conformance cases for stores, stores that fail on purpose, and the simulator.
"""

from holdfast.testing.chaos import ChaosStore

__all__ = ["ChaosStore"]
