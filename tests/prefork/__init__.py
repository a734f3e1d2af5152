"""Locks at module level under servers and pools that fork."""
