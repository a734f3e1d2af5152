"""A module and its twin, for the test of the tool that makes twins."""
