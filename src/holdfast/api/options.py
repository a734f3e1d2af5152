"""Checks of arguments, made before anything is done. Each returns the checked value."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, TypeAlias, cast, get_args

import msgspec

from holdfast.core.listing import SHORTEST_RETENTION
from holdfast.core.records import LONGEST_TTL, SECOND, Micros, Mode, Note
from holdfast.errors import BadKey, BadOption

Seconds: TypeAlias = float | timedelta
# What happens at a loss: a function is called with the lease, or the block's task is cancelled.
OnLost: TypeAlias = Callable[[Any], Any] | Literal["cancel"] | None

SHORTEST_TTL_S = 0.05
LONGEST_TTL_S = LONGEST_TTL / SECOND
SHORTEST_REQUEST_S = 0.01
LONGEST_TEXT = 256
LONGEST_NOTE = 4096
# MariaDB takes JSON that is 32 levels deep, and a note lies three levels deep in its record.
DEEPEST_NOTE = 20
MOST_PERMITS = 10_000
MOST_PREFIX_BYTES = 512
_PLAIN_NUMBERS = (int, float)


def plain_text(text: str) -> str:
    """Returns a plain `str` with the same text. Drivers disagree on the text of a member of a
    string enumeration: one lock would be two."""
    return text if type(text) is str else str.__str__(text)


def check_key(key: Any, max_bytes: int) -> str:
    """A key that every store can keep exactly as it is."""
    if not isinstance(key, str):
        raise BadKey(f"A key is a string, not {type(key).__name__}.")
    if not key:
        raise BadKey("A key cannot be empty.")
    try:
        size = len(key) if key.isascii() else len(key.encode())
    except UnicodeEncodeError:
        raise BadKey("A key must be text that UTF-8 can hold; this has a lone surrogate.") from None
    if "\0" in key:
        raise BadKey("A key cannot have a NUL character in it: not every store can hold one.")
    if size > max_bytes:
        raise BadKey(
            f"This key has {size} bytes and {max_bytes} are the most: use a digest of it "
            f"({key[:40]!r}…)."
        )
    return plain_text(key)


def check_prefix(prefix: Any) -> str:
    """A prefix of keys; an empty one means all keys."""
    if not isinstance(prefix, str):
        raise BadKey(f"A prefix of keys is a string, not {type(prefix).__name__}.")
    return check_key(prefix, MOST_PREFIX_BYTES) if prefix else ""


def check_cap(beats_per_second: Any) -> float | None:
    """A cap on renewals a second."""
    if beats_per_second is None:
        return None
    plain = isinstance(beats_per_second, (int, float)) and not isinstance(beats_per_second, bool)
    if not plain or not beats_per_second > 0:
        raise BadOption("beats_per_second is a number above 0, or None for no cap.")
    return float(beats_per_second)


def check_on_lost(on_lost: Any, word: str | None) -> None:
    """Raise unless `acquire(on_lost=…)` can do this: call a function, or do what `word` says."""
    if callable(on_lost) or (word is not None and on_lost == word):
        return
    if on_lost == "cancel":
        raise BadOption(
            'on_lost="cancel" is for asyncio, because a thread cannot be cancelled: pass a '
            "function, or look at lease.lost or call lease.check() in the block."
        )
    raise BadOption(f'on_lost is a function, or "cancel" in asyncio, not {on_lost!r}.')


def is_plain(value: Any) -> bool:
    """Whether this is an int or a float itself, not a subclass such as bool."""
    return type(value) in _PLAIN_NUMBERS


def micros(value: Any, name: str) -> Micros:
    """Seconds or a timedelta, as microseconds; finite and not negative."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadOption(f"{name} is a number of seconds or a timedelta, not {value!r}.")
    try:
        whole = round(float(value) * SECOND)
    except (OverflowError, ValueError):  # absurdly large, infinite, or not a number
        whole = -1
    if whole < 0:
        shown = repr(value) if isinstance(value, float) or abs(value) < 10**20 else "that many"
        raise BadOption(f"{name} is a number of seconds from 0 up, not {shown}.")
    return whole


def check_ttl(ttl: Any) -> Micros:
    """How long a lease lasts without renewal."""
    if is_plain(ttl) and SHORTEST_TTL_S <= ttl <= LONGEST_TTL_S:
        return int(ttl * SECOND)
    value = micros(ttl, "ttl")
    if not SHORTEST_TTL_S * SECOND <= value <= LONGEST_TTL_S * SECOND:
        raise BadOption(
            f"ttl is from {SHORTEST_TTL_S:g} s to 30 days, not {ttl!r}. The ttl is how long "
            "a lock outlives a holder that died; while the holder lives, the lease is "
            "renewed."
        )
    return value


def check_request_timeout(request_timeout: Any) -> Micros:
    """How long a request to the store may take."""
    value = micros(request_timeout, "request_timeout")
    if value < SHORTEST_REQUEST_S * SECOND:
        raise BadOption(
            f"request_timeout is at least {SHORTEST_REQUEST_S:g} s, not {request_timeout!r}: no "
            f"store could answer sooner."
        )
    return value


def check_patience(store_patience: Any) -> Micros | None:
    """How long a waiting call goes on while the store is in trouble; None: for ever."""
    return None if store_patience is None else micros(store_patience, "store_patience")


def check_retention(older_than: Any) -> Micros:
    """How long an unused record stays."""
    value = micros(older_than, "older_than")
    if value < SHORTEST_RETENTION:
        least = SHORTEST_RETENTION / SECOND
        raise BadOption(
            f"Records younger than {least:g} s cannot be purged (older_than, --older-than): they "
            "are still needed, to keep the fences of their locks growing."
        )
    return value


def check_mode(mode: Any, limit: Any) -> tuple[Mode, int | None]:
    """Exclusive, shared, or one of `limit` permits."""
    if mode is None and limit is None:
        return "exclusive", None
    if limit is not None:
        if mode not in (None, "counted"):
            raise BadOption(f"limit counts permits; it cannot go with mode={mode!r}.")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_PERMITS:
            raise BadOption(f"limit is a whole number from 1 to {MOST_PERMITS}, not {limit!r}.")
        return "counted", limit
    if mode not in get_args(Mode):
        raise BadOption(f"mode is 'exclusive' or 'shared', not {mode!r}.")
    if mode == "counted":
        raise BadOption("A counted lease needs limit=, the number of permits.")
    return cast("Mode", mode), None


def check_fair(fair: Any) -> bool | None:
    """Whether to queue at once (True), after a moment (None) or never (False)."""
    if fair is not None and not isinstance(fair, bool):
        raise BadOption(f"fair is True, False or None, not {fair!r}.")
    return fair


def check_switch(value: Any, name: str) -> bool:
    """True or False, and no other value that counts as one of them."""
    if not isinstance(value, bool):
        raise BadOption(f"{name} is True or False, not {value!r}.")
    return value


def check_fence(fence: Any) -> int | None:
    """A fence to compare with; None means any."""
    if fence is not None and (isinstance(fence, bool) or not isinstance(fence, int)):
        raise BadOption(f"fence is a whole number, not {fence!r}.")
    return fence


def check_callback(callback: Any, name: str) -> Callable[..., Any]:
    """A function that can be called later."""
    if not callable(callback):
        raise BadOption(f"{name} takes a function, not {callback!r}.")
    checked: Callable[..., Any] = callback
    return checked


def check_owner(owner: Any, name: str = "owner") -> str:
    """The name of an owner, or of an operator."""
    if not isinstance(owner, str) or not owner or len(owner) > LONGEST_TEXT:
        raise BadOption(f"{name} is a name of 1 to {LONGEST_TEXT} characters.")
    return _encodable(owner, name)


def check_reason(reason: Any) -> str:
    """The reason of an eviction. It may be empty."""
    if not isinstance(reason, str) or len(reason) > LONGEST_TEXT:
        raise BadOption(f"reason is text of at most {LONGEST_TEXT} characters.")
    return _encodable(reason, "reason")


def _encodable(text: str, name: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadOption(f"{name} must be text that UTF-8 can hold.") from None
    return plain_text(text)


def check_note(note: Any) -> Note:
    """A small dict that JSON can hold."""
    if not isinstance(note, dict) or not all(isinstance(name, str) for name in note):
        raise BadOption("note is a dict with strings as keys.")
    try:
        encoded = msgspec.json.encode(note)
        # A copy: later changes of the caller's dict do not reach the note.
        copy = msgspec.json.decode(encoded)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as exc:
        raise BadOption(f"note must be something that JSON can hold: {exc}") from None
    if len(encoded) > LONGEST_NOTE:
        raise BadOption(f"note has {len(encoded)} bytes as JSON, and {LONGEST_NOTE} are the most.")
    if not _is_shallow(copy, DEEPEST_NOTE):
        raise BadOption(f"note is nested too deeply: {DEEPEST_NOTE} levels are the most.")
    return cast("Note", copy)


def _is_shallow(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return True
    return levels > 0 and all(_is_shallow(inner, levels - 1) for inner in value)


def default_owner() -> str:
    """Returns host and process id."""
    host = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "?")
    return f"{host}:{os.getpid()}"
