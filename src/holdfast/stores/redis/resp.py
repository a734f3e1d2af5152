"""Commands as bytes, for both faces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hiredis

_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command  # its own type is too narrow


def pack(*arguments: bytes | str | int) -> bytes:
    """A command as it is sent."""
    return _pack(arguments)


def bulk(argument: bytes) -> bytes:
    """One argument of a command as it is sent."""
    return b"$%d\r\n%b\r\n" % (len(argument), argument)


INFO = pack(b"INFO")
PING = pack(b"PING")
ROLE = pack(b"ROLE")
ASKING = pack(b"ASKING")
CLUSTER_SLOTS = pack(b"CLUSTER", b"SLOTS")


def scan_from(position: bytes, pattern: bytes) -> bytes:
    """A step of SCAN."""
    return pack(b"SCAN", position, b"MATCH", pattern, b"COUNT", 1000)


def master_of(service: str) -> bytes:
    """The request to a Sentinel."""
    return pack(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service)


def wait_request(replicas: int, wait_s: float) -> bytes:
    """Returns the WAIT that follows a grant; nothing, if no replica has to confirm it."""
    if not replicas:
        return b""
    return pack(b"WAIT", replicas, max(1, round(wait_s * 1000)))
