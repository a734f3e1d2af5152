"""What the steps can ask of the world, as typed data.

A step says `entry = yield from Load(key)`: iterating an effect yields the effect itself to
the driver and returns the driver's answer with its type. (A bare `x = yield Load(key)`
would be `Any`, and a forgotten `yield from` would do nothing: a test forbids both.)

A driver answers every effect, or throws into the steps one of these errors:
`Unavailable` and `Misconfigured` (surely not done) or `OutcomeUnknown`. Whatever a store
answers, the driver stamps with the own clock's time *after* the reply came; a load, whose
reading of the store's clock is carried forward, also with the time before it was sent.

An effect that asks something of the store says `by` when, on the own clock, its answer must be
there: later it is of no use to the caller. The driver passes that on to the store, or sooner,
because no request may take longer than the client's `request_timeout`. A request whose time is
over before it is sent is `Unavailable`. (`Wait` and `Sleep` have a length instead.)
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct

from holdfast.core.commands import NOBODY, Command, Wake
from holdfast.core.contract import (
    Amended,
    Applied,
    Change,
    Conflict,
    Entry,
    Found,
    Page,
    Swapped,
    Version,
)
from holdfast.core.records import NEVER, Discreet, Micros, Record

if TYPE_CHECKING:
    from holdfast.core.cohorts import Member
    from holdfast.core.events import Event
    from holdfast.core.holds import Hold

R = TypeVar("R")
Ask: TypeAlias = Generator["Effect", Any, R]


class Load(Struct, frozen=True, gc=False):
    """Load a record. Returns it, when the request left, and when the reply came."""

    key: str
    by: Micros = NEVER

    def __iter__(self) -> Ask[tuple[Entry, Micros, Micros]]:
        answer: tuple[Entry, Micros, Micros] = yield self
        return answer


class Swap(Discreet, frozen=True, gc=False):
    """Write a record if its version is still this one; a record of None deletes it.

    `wake` says who may be let in by this write, for stores that can tell them.
    """

    key: str
    version: Version
    record: Record | None
    wake: Wake = NOBODY
    by: Micros = NEVER

    def __iter__(self) -> Ask[tuple[Swapped | Conflict, Micros]]:
        answer: tuple[Swapped | Conflict, Micros] = yield self
        return answer


class SwapMany(Struct, frozen=True, gc=False):
    """Many swaps in one trip. Each has an outcome of its own; an error stands for one."""

    swaps: tuple[Swap, ...]
    by: Micros = NEVER

    def __iter__(self) -> Ask[tuple[Sequence[Swapped | Conflict | Exception], Micros]]:
        answer: tuple[Sequence[Swapped | Conflict | Exception], Micros] = yield self
        return answer


class Amend(Struct, frozen=True, gc=False):
    """Hold a record still, ask a pure function about it, and write what it decides. No conflict is
    possible. Only for stores that `amend`."""

    key: str
    change: Change
    by: Micros = NEVER

    def __iter__(self) -> Ask[tuple[Amended, Micros]]:
        answer: tuple[Amended, Micros] = yield self
        return answer


class Apply(Struct, frozen=True, gc=False):
    """Run a whole command inside the store. Only for stores that are `scripted`."""

    key: str
    command: Command
    beat: str
    by: Micros = NEVER

    def __iter__(self) -> Ask[tuple[Applied, Micros]]:
        answer: tuple[Applied, Micros] = yield self
        return answer


class ApplyMany(Struct, frozen=True, gc=False):
    """Many commands in one trip. Each has an outcome of its own; an error stands for one."""

    applies: tuple[Apply, ...]
    by: Micros = NEVER

    def __iter__(self) -> Ask[tuple[Sequence[Applied | Exception], Micros]]:
        answer: tuple[Sequence[Applied | Exception], Micros] = yield self
        return answer


class Scan(Struct, frozen=True, gc=False):
    """Read a page of records whose keys start with a prefix."""

    prefix: str
    cursor: str | None
    limit: int
    by: Micros = NEVER

    def __iter__(self) -> Ask[Page]:
        answer: Page = yield self
        return answer


class Wait(Discreet, frozen=True, gc=False):
    """Wait until the key may have changed for this token, or until a time is over. Returns what
    was there then, if the store happened to read it, or that the lock was granted to the place of
    this token. Both may have changed again since."""

    key: str
    version: Version
    token: str
    at_most: Micros

    def __iter__(self) -> Ask[Found]:
        answer: Found = yield self
        return answer


class Park(Struct, frozen=True, gc=False):
    """Wait until the turn of this caller may have come inside of its process, or for a time."""

    member: Member
    at_most: Micros

    def __iter__(self) -> Ask[None]:
        yield self


class Now(Struct, frozen=True, gc=False):
    """This client's own monotonic clock."""

    def __iter__(self) -> Ask[Micros]:
        answer: Micros = yield self
        return answer


class Wall(Struct, frozen=True, gc=False):
    """This client's wall clock, for people and as a last resort; it decides nothing."""

    def __iter__(self) -> Ask[Micros]:
        answer: Micros = yield self
        return answer


class Sleep(Struct, frozen=True, gc=False):
    """Pause for a time."""

    duration: Micros

    def __iter__(self) -> Ask[None]:
        yield self


class Draw(Struct, frozen=True, gc=False):
    """Random bytes that nobody can guess, as hex."""

    size: int

    def __iter__(self) -> Ask[str]:
        answer: str = yield self
        return answer


class Emit(Struct, frozen=True, gc=False):
    """Pass an event on to the client's sinks."""

    event: Event

    def __iter__(self) -> Ask[None]:
        yield self


class Keep(Struct, frozen=True, gc=False):
    """Have the keeper renew a hold from now on, because these steps go on after its grant."""

    hold: Hold

    def __iter__(self) -> Ask[None]:
        yield self


Effect: TypeAlias = (
    Load
    | Swap
    | SwapMany
    | Amend
    | Apply
    | ApplyMany
    | Scan
    | Wait
    | Park
    | Now
    | Wall
    | Sleep
    | Draw
    | Emit
    | Keep
)
Steps: TypeAlias = Generator[Effect, Any, R]

NOW = Now()
WALL = Wall()
