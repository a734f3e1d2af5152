"""What a place for results is, and how results become bytes.

A place keeps one result for each key, perhaps for a limited time. Publishing is fenced where the
place can compare fences: then a maker that has lost its lease cannot replace what its successor
has published.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from holdfast.api.options import Seconds, micros
from holdfast.core.records import SECOND
from holdfast.errors import BadOption

if TYPE_CHECKING:
    from holdfast.fencing.gate import Fenced


class Found(Struct, frozen=True):
    """A result that was found. Its `value`, which is the result itself, may be None."""

    value: Any


class Codec(Struct, frozen=True):
    """How results become bytes, and bytes results.

    encode  a function from a result to bytes
    decode  a function from those bytes to the result
    """

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _as_bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise BadOption(
            f"A result of type {type(value).__name__} is not bytes: return bytes, or choose "
            f'codec="json", or give a Codec of your own.'
        )
    return bytes(value)


def _as_json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise BadOption(
            f"A result of type {type(value).__name__} cannot be kept as JSON ({exc}): return "
            f'what JSON has, or bytes with codec="bytes", or give a Codec of your own.'
        ) from exc


JSON = Codec(_as_json, msgspec.json.decode)
BYTES = Codec(_as_bytes, bytes)
_CODECS = {"json": JSON, "bytes": BYTES}


def codec_of(codec: str | Codec) -> Codec:
    """Returns the codec that a caller names or gives."""
    if isinstance(codec, Codec):
        return codec
    if codec not in _CODECS:
        raise BadOption(f'codec is "json", "bytes" or a Codec, not {codec!r}.')
    return _CODECS[codec]


def seconds_of(ttl: Seconds | None) -> float | None:
    """Returns for how many seconds a result is good; None: for ever."""
    return None if ttl is None else micros(ttl, "ttl") / SECOND


class Results(ABC):
    """A place for results: subclass it for one of your own.

    All methods may be called from several threads at once.
    """

    @abstractmethod
    def find(self, key: str) -> Found | None:
        """Returns the result under a key; None if there is none, or if it is older than its ttl."""

    @abstractmethod
    def publish(self, key: str, value: Any, lease: Fenced) -> None:
        """Keep a result that was made under this lease. Raises `StaleFence` if a later holder has
        published one."""
