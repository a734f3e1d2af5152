"""Text that does not show itself, not even in tracebacks with local variables.

A ticket or a URL becomes a `Secret` where it enters: a `str` whose `repr` hides it. Records and
commands hide their tokens themselves (`records.Discreet`). `runtime.frames` takes care of what a
store has to write out.
"""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")

_SHOWN = "'***'"


class Secret(str):
    """A `str` whose `repr` hides it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _SHOWN

    def __getitem__(self, index: Any) -> Secret:
        # A tool that shortens long texts before it shows them must not reveal it.
        return Secret(super().__getitem__(index))


class SecretBytes(bytes):
    """The same for bytes, which a caller may pass by mistake."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _SHOWN

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return SecretBytes(found) if isinstance(found, bytes) else found


def hidden(thing: T) -> T:
    """Returns the same text, hidden; other objects as they are. Call it where a secret enters."""
    if isinstance(thing, str):
        return Secret(thing)  # type: ignore[return-value]
    return SecretBytes(thing) if isinstance(thing, bytes) else thing  # type: ignore[return-value]
