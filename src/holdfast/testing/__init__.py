"""For us and for users: conformance cases for stores, faults on purpose, the simulator."""
