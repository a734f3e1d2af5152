"""What the operations share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from holdfast.core.contract import Entry
from holdfast.core.records import Holder
from holdfast.errors import OutcomeUnknown, Unavailable
from holdfast.stores.base import Store
from tests.helpers import unique
from tests.stores.lane import Lane


class Operation(ABC):
    """One call, what has to be there before, and how to see whether it was done."""

    name: ClassVar[str]
    kind: ClassVar[str]
    cold: ClassVar[bool] = False  # on a connection that has yet to be made
    lists: ClassVar[bool] = False  # needs a place without other people's locks, where there are any
    faces: ClassVar[tuple[str, ...]] = ("sync", "async")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.key = f"walk/{unique()}"
        self.keys: tuple[str, ...] = (self.key,)

    @classmethod
    def fits(cls, store: Store) -> bool:
        """Whether this store can do it."""
        return True

    async def prepare(self) -> None:
        """Before the fault."""

    @abstractmethod
    async def call(self) -> Any:
        """With the fault."""

    @abstractmethod
    def done(self, before: Entry, after: Entry) -> bool:
        """Whether something of the call is in the store, by one key."""

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        """What is wrong with an answer."""
        return None

    def words(self, result: Any) -> dict[str, str]:
        """What a call that returned says of each key."""
        return dict.fromkeys(self.keys, "returned")

    def mine(self, after: Entry) -> Holder | None:
        """What a call that failed may leave behind."""
        return None

    async def tidy(self, result: Any) -> str | None:
        """End what a call that returned has got; what is wrong with that."""
        return None


class Read(Operation):
    """Changes nothing."""

    kind = "read"

    def done(self, before: Entry, after: Entry) -> bool:
        return before.record != after.record


def beats_of(entry: Entry) -> list[str]:
    """What was written last by each holder."""
    return [holder.beat for holder in entry.record.holders]


def unlike(is_so: Any, should_be: Any) -> str | None:
    """What is wrong, if something is."""
    return None if is_so == should_be else f"{is_so!r} instead of {should_be!r}"


def word_for(trouble: BaseException) -> str:
    """What an error says of the outcome."""
    if isinstance(trouble, OutcomeUnknown):
        return "unknown"
    if isinstance(trouble, Unavailable):
        return "not done"
    return f"{type(trouble).__name__}: {trouble}"
