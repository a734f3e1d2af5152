"""What the steps can ask of the world, as typed data.

A step says `entry = yield from Load(key)`: iterating an effect yields the effect itself to
the driver and returns the driver's answer with its type. (A bare `x = yield Load(key)`
would be `Any`, and a forgotten `yield from` would do nothing: a test forbids both.)

A driver answers every effect, or throws into the steps one of these errors:
`Unavailable` and `Misconfigured` (surely not done) or `OutcomeUnknown`. Whatever a store
answers, the driver stamps with the own clock's time *after* the reply came; a load, whose
reading of the store's clock is carried forward, also with the time before it was sent.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct

from holdfast.core.commands import NOBODY, Command, Wake
from holdfast.core.contract import Applied, Conflict, Entry, Page, Swapped, Version
from holdfast.core.records import Discreet, Micros, Record

if TYPE_CHECKING:
    from holdfast.core.events import Event
    from holdfast.core.holds import Hold

R = TypeVar("R")
Ask: TypeAlias = Generator["Effect", Any, R]


class Load(Struct, frozen=True, gc=False):
    """Load a record. Returns it, when the request left, and when the reply came."""

    key: str

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

    def __iter__(self) -> Ask[tuple[Swapped | Conflict, Micros]]:
        answer: tuple[Swapped | Conflict, Micros] = yield self
        return answer


class SwapMany(Struct, frozen=True, gc=False):
    """Many swaps in one trip. Each has an outcome of its own; an error stands for one."""

    swaps: tuple[Swap, ...]

    def __iter__(self) -> Ask[tuple[Sequence[Swapped | Conflict | Exception], Micros]]:
        answer: tuple[Sequence[Swapped | Conflict | Exception], Micros] = yield self
        return answer


class Apply(Struct, frozen=True, gc=False):
    """Run a whole command inside the store. Only for stores that are `scripted`."""

    key: str
    command: Command
    beat: str

    def __iter__(self) -> Ask[tuple[Applied, Micros]]:
        answer: tuple[Applied, Micros] = yield self
        return answer


class ApplyMany(Struct, frozen=True, gc=False):
    """Many commands in one trip. Each has an outcome of its own; an error stands for one."""

    applies: tuple[Apply, ...]

    def __iter__(self) -> Ask[tuple[Sequence[Applied | Exception], Micros]]:
        answer: tuple[Sequence[Applied | Exception], Micros] = yield self
        return answer


class Scan(Struct, frozen=True, gc=False):
    """Read a page of records whose keys start with a prefix."""

    prefix: str
    cursor: str | None
    limit: int

    def __iter__(self) -> Ask[Page]:
        answer: Page = yield self
        return answer


class Wait(Discreet, frozen=True, gc=False):
    """Wait until the key may have changed for this token, or until a time is over. Returns what
    was there then, if the store happened to read it. It may have changed again since."""

    key: str
    version: Version
    token: str
    at_most: Micros

    def __iter__(self) -> Ask[Entry | None]:
        answer: Entry | None = yield self
        return answer


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
    | Apply
    | ApplyMany
    | Scan
    | Wait
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
