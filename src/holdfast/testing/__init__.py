"""For our tests and for yours.

`holdfast.testing.sim` runs the protocol in a simulated world from a seed.
"""
