"""Tickets: a lease in a short string that fits an environment variable or a job spec.

    hf1s.<base64url>     share: a second party may keep the same lease alive
    hf1h.<base64url>     hand-over: the next party becomes the holder

Inside are the key, the token, the ttl and the rights, with a checksum, because strings
get cut.

A ticket is a bearer secret: treat it like a password. A share ticket has the lease's own token
in it, and with the token anybody can renew, free or hand over the lease. That a ticket does
not give the right to release is a courtesy between parties who trust each other: `join()`
keeps to it, and whoever takes the ticket apart need not. The checksum is no signature.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Literal
from zlib import crc32

import msgspec

from holdfast.core.discreet import hidden
from holdfast.core.records import Discreet, Micros
from holdfast.errors import BadTicket

Kind = Literal["share", "hand-over"]
_PREFIXES: dict[Kind, str] = {"share": "hf1s.", "hand-over": "hf1h."}


class Ticket(Discreet, frozen=True, array_like=True):
    """What a ticket says. `may_release` is what the holder asks of the second party; the store
    knows the token alone."""

    key: str
    token: str
    fence: int
    ttl: Micros
    may_release: bool = False
    trace: str = ""  # for whoever traces: the context (W3C traceparent) that the lease belongs to


_decoder = msgspec.msgpack.Decoder(Ticket)


def seal(kind: Kind, ticket: Ticket) -> str:
    """The ticket as a string."""
    body = msgspec.msgpack.encode(ticket)
    return _PREFIXES[kind] + urlsafe_b64encode(_checksum(body) + body).decode().rstrip("=")


def unseal(kind: Kind, text: str) -> Ticket:
    """The ticket back from a string of the right kind, or `BadTicket`."""
    if not isinstance(text, str):
        raise BadTicket(f"A ticket is a string, not {type(text).__name__}.")
    text = hidden(text.strip())
    other: Kind = "hand-over" if kind == "share" else "share"
    if text.startswith(_PREFIXES[other]):
        verb = {"share": "join", "hand-over": "take"}[other]
        raise BadTicket(f"This is a {other} ticket: use it with {verb}().")
    if not text.startswith(_PREFIXES[kind]):
        raise BadTicket
    ticket = _opened(text[5:])
    if ticket is None:
        raise BadTicket
    return ticket


def _opened(text: str) -> Ticket | None:
    """Nothing is raised from here, where a traceback would show what is in the ticket."""
    try:
        sealed = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        whole = _checksum(sealed[4:]) == sealed[:4]
        return _decoder.decode(sealed[4:]) if whole else None
    except (ValueError, msgspec.MsgspecError):
        return None


def _checksum(body: bytes) -> bytes:
    return crc32(body).to_bytes(4, "big")
