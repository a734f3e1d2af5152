"""Plain commands, packed, for both faces."""

from __future__ import annotations

from hiredis import pack_command

TIME: bytes = pack_command((b"TIME",))
INFO: bytes = pack_command((b"INFO",))


def get_request(name: bytes) -> bytes:
    """GET."""
    packed: bytes = pack_command((b"GET", name))
    return packed


def start_request(name: bytes) -> bytes:
    """The start of a record, with its rev."""
    packed: bytes = pack_command((b"GETRANGE", name, 0, 63))
    return packed


def scan_request(position: bytes, pattern: bytes) -> bytes:
    """A step of SCAN."""
    packed: bytes = pack_command((b"SCAN", position, b"MATCH", pattern, b"COUNT", 1000))
    return packed
