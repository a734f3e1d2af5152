"""Locks as files in a directory: `file:///path`."""
