"""What goes over HTTP: one header to the service, and a small JSON answer when it refuses.

Holdfast-Fence: 1794772803514763;key=orders%2F7
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from contextvars import ContextVar
from urllib.parse import quote, unquote

from msgspec import Struct

from holdfast.errors import BadOption, HoldfastError, KeyMismatch, StaleFence, UsageError
from holdfast.fencing.gate import Fence, Fenced, check_same_key, fence_of, whole_number

HEADER = "Holdfast-Fence"
STALE, NEEDED, WRONG_KEY, BAD = 412, 428, 409, 400
# Requests that change nothing need no fence.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_ENCODED = re.compile(r"(?:[!-~](?<![%,;])|%[0-9A-Fa-f]{2})+")

current: ContextVar[Fence | None] = ContextVar("holdfast_fence", default=None)


def headers(lease: Fenced, *, key: str | None = None) -> dict[str, str]:
    """Returns the header that a service needs to admit what this lease sends."""
    fence = fence_of(lease, key)
    return {HEADER: f"{fence.fence};key={quote(fence.key, safe='')}"}


def fence_in(header: str) -> Fence:
    """Returns the fence in the text of a header. Raises `BadOption` if there is none."""
    number, mark, key = header.strip().partition(";key=")
    # A server may join a header that came twice by a comma. That must not be part of a key.
    if not mark or not _ENCODED.fullmatch(key):
        raise BadOption(
            f"{HEADER} is a fence and a percent-encoded key, once, as in `17;key=orders%2F7`."
        )
    try:
        return Fence(unquote(key, errors="strict"), whole_number(number, HEADER))
    except UnicodeDecodeError:
        raise BadOption(f"The key in {HEADER} is not UTF-8.") from None


def current_fence() -> Fence:
    """Returns the fence of the request that is being handled, to admit it in a transaction."""
    fence = current.get()
    if fence is None:
        raise UsageError("No request with a fence is being handled here.")
    return fence


class Reply(Struct, frozen=True):
    """An answer of the middleware's own."""

    status: int
    body: bytes

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Returns its headers."""
        size = str(len(self.body))
        return [("Content-Type", "application/json"), ("Content-Length", size)]


def reply_to(trouble: HoldfastError) -> Reply:
    """Returns the answer to a request that was refused, for handlers of your own, too."""
    if isinstance(trouble, StaleFence):
        return _reply(
            STALE, "stale fence", trouble,
            key=trouble.key, fence=trouble.fence, remembered=trouble.remembered,
        )  # fmt: skip
    if isinstance(trouble, KeyMismatch):
        return _reply(WRONG_KEY, "wrong key", trouble)
    return _reply(BAD, "bad fence", trouble)


def _reply(status: int, error: str, message: object, **more: object) -> Reply:
    return Reply(status, json.dumps({"error": error, "message": str(message), **more}).encode())


NO_FENCE = _reply(NEEDED, "no fence", f"This needs a {HEADER} header: send the lease's.")


def raise_if_stale(status: int, body: bytes | str) -> None:
    """Raise `StaleFence` if that is what a service has answered. For the side that called it."""
    if status != STALE:
        return
    try:
        said = json.loads(body)
        key, fence, remembered = said["key"], int(said["fence"]), said["remembered"]
    except (ValueError, TypeError, KeyError, OverflowError):
        return  # a 412 of somebody else's
    raise StaleFence(str(said.get("message")), key=key, fence=fence, remembered=remembered)


class Failed(Exception):
    """The application has answered with a server error: the gate's transaction is not committed.
    Frameworks make such an answer of an exception, so that nobody else would learn of it."""


class Guard(Struct, frozen=True):
    """Which requests are guarded, and by which key."""

    key: str | None
    methods: frozenset[str] | None  # None: all that are not safe

    @classmethod
    def of(cls, key: str | None, methods: Collection[str] | None) -> Guard:
        """Returns the guard of a middleware with these options."""
        if methods is None:
            return cls(key, None)
        if isinstance(methods, str) or not methods:
            raise BadOption('methods is a collection of their names, such as {"POST", "PUT"}.')
        if not all(isinstance(method, str) and method for method in methods):
            raise BadOption("methods is a collection of names: each of them is a string.")
        return cls(key, frozenset(method.upper() for method in methods))

    def applies(self, method: str) -> bool:
        """Whether a request of this method needs a fence."""
        if self.methods is None:
            return method not in SAFE_METHODS
        return method in self.methods

    def fence(self, header: str | None) -> Fence | Reply:
        """Returns the fence of a request, or the answer if it cannot be used."""
        if header is None:
            return NO_FENCE
        try:
            fence = fence_in(header)
            if self.key is not None:
                check_same_key(fence, self.key)
        except HoldfastError as trouble:
            return reply_to(trouble)
        return fence
