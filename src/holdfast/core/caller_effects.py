"""What the loops of `once` and `lead` ask of the faces: calls of the client, and functions of the
caller's. Typed as those in `effects`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Literal

from msgspec import Struct

# How a term of leading can end.
Ending = Literal["returned", "lost", "resigned", "stopped"]


class Raised(Struct, frozen=True):
    """What a function of the caller's has raised. It is passed on as data, so that its traceback
    stays as it is: a driver takes the frames of a store from what it throws."""

    exception: Exception


def returned(answer: Any) -> Any:
    """Returns what a function of the caller's has returned, or raises what it has raised."""
    if isinstance(answer, Raised):
        raise answer.exception
    return answer


class Find(Struct, frozen=True):
    """Look for the result. Returns None if there is none."""

    def __iter__(self) -> Generator[Find, Any, Any]:
        return returned((yield self))


class TryAcquire(Struct, frozen=True):
    """Try for the lock. Returns the lease, or None if the lock is taken."""

    def __iter__(self) -> Generator[TryAcquire, Any, Any]:
        return (yield self)


class WaitUntilFree(Struct, frozen=True):
    """Wait until nobody holds the lock, or raise when the caller's time is over."""

    def __iter__(self) -> Generator[WaitUntilFree, Any, None]:
        yield self


class Make(Struct, frozen=True):
    """Make the result and publish it, under this lease."""

    lease: Any

    def __iter__(self) -> Generator[Make, Any, None]:
        returned((yield self))


class Campaign(Struct, frozen=True):
    """Wait for the lock, for as long as it takes. Returns the lease; None if stopped."""

    def __iter__(self) -> Generator[Campaign, Any, Any]:
        return (yield self)


class Lead(Struct, frozen=True):
    """Run the leader's work under this lease until the work has ended. Returns why it ended; an
    exception of the work is raised."""

    lease: Any

    def __iter__(self) -> Generator[Lead, Any, Ending]:
        ending: Ending = returned((yield self))
        return ending


class Resign(Struct, frozen=True):
    """Give the lease back."""

    lease: Any

    def __iter__(self) -> Generator[Resign, Any, None]:
        yield self


FIND = Find()
TRY_ACQUIRE = TryAcquire()
WAIT_UNTIL_FREE = WaitUntilFree()
CAMPAIGN = Campaign()
