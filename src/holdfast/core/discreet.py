"""Text that is not shown, also by tracebacks with local variables (rich, Sentry, pytest -l).

A ticket or a URL becomes a `Secret` where it enters: text like any other, which does not show
itself. Records and commands hide their tokens by themselves (`records.Discreet`); for what a store
has to write out, see `runtime.frames`.
"""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")

_SHOWN = "'***'"


class Secret(str):
    """Text that is not shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _SHOWN

    def __getitem__(self, index: Any) -> Secret:
        # Whoever shortens a long text before it is shown must not get at it.
        return Secret(super().__getitem__(index))


class SecretBytes(bytes):
    """The same for bytes, which somebody may pass by mistake."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _SHOWN

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return SecretBytes(found) if isinstance(found, bytes) else found


def hidden(thing: T) -> T:
    """The same, but not shown if it is text. Call it first where something secret comes in."""
    if isinstance(thing, str):
        return Secret(thing)  # type: ignore[return-value]
    return SecretBytes(thing) if isinstance(thing, bytes) else thing  # type: ignore[return-value]
