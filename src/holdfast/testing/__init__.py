"""Tools for testing stores and code that uses locks, for us and for users.

Conformance cases for stores, stores that fail on purpose, a clock that is moved by hand, a plugin
for pytest, and the simulator.
"""

from holdfast.testing.chaos import ChaosStore
from holdfast.testing.hand_clock import HandClock
from holdfast.testing.instead import use_store

__all__ = ["ChaosStore", "HandClock", "use_store"]
