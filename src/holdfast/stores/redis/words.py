"""Commands as bytes, for both faces."""

from __future__ import annotations

from typing import Any

import hiredis


def pack(*words: bytes | str | int) -> bytes:
    """A command as it is sent."""
    packer: Any = hiredis.pack_command
    packed: bytes = packer(words)
    return packed


TIME = pack(b"TIME")
INFO = pack(b"INFO")
PING = pack(b"PING")
ROLE = pack(b"ROLE")
ASKING = pack(b"ASKING")
CLUSTER_SLOTS = pack(b"CLUSTER", b"SLOTS")


def start_of(name: bytes) -> bytes:
    """The start of a record, with its rev."""
    return pack(b"GETRANGE", name, 0, 63)


def scan_from(position: bytes, pattern: bytes) -> bytes:
    """A step of SCAN."""
    return pack(b"SCAN", position, b"MATCH", pattern, b"COUNT", 1000)


def master_of(service: str) -> bytes:
    """The question to a Sentinel."""
    return pack(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service)
