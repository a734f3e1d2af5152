"""The operations of a store: each is one call, and nobody tries again."""

from __future__ import annotations

import time
from typing import Any

from holdfast.core import rules
from holdfast.core.commands import Claim, Decision, Granted, Stamp
from holdfast.core.contract import Entry, Swapped
from holdfast.core.effects import Apply, Swap
from holdfast.core.records import SECOND, Record
from holdfast.stores.base import Store
from tests.helpers import unique
from tests.stores.lane import LONG_S, Lane
from tests.stores.operations.base import Operation, Read, unlike, word_for


def sample(fence: int) -> Record:
    """A record of a lock that is free."""
    return Record(fence=fence, updated_at=int(time.time()) * SECOND)


def claim() -> Claim:
    """A claim with a token of its own."""
    return Claim(unique(), "claimant", "exclusive", int(LONG_S) * SECOND)


class LoadOne(Read):
    """A record that is there."""

    name = "load"

    async def prepare(self) -> None:
        self.lane.direct.swap(self.key, None, sample(1))

    async def call(self) -> Any:
        return await self.lane.run(self.lane.store.load, self.key)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return unlike(result.record, after[self.key].record)


class ColdLoad(LoadOne):
    """The same with a new connection."""

    name = "load (cold)"
    cold = True


class ScanAll(Read):
    """Two records."""

    name = "scan"
    lists = True

    def __init__(self, lane: Lane) -> None:
        super().__init__(lane)
        self.keys = (f"{self.key}/a", f"{self.key}/b")

    async def prepare(self) -> None:
        for key in self.keys:
            self.lane.direct.swap(key, None, sample(1))

    async def call(self) -> Any:
        found, cursor = [], None
        while True:
            page = await self.lane.run(self.lane.store.scan, f"{self.key}/", cursor, 10)
            found += page.entries
            cursor = page.cursor
            if cursor is None:
                return found

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return unlike(
            {key: entry.record for key, entry in result},
            {key: entry.record for key, entry in after.items()},
        )


class Write(Operation):
    """One swap of the store's, without anybody who would try it again."""

    kind = "write"

    def words(self, result: Any) -> dict[str, str]:
        return {self.key: "returned" if isinstance(result, Swapped) else "conflict"}

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        if isinstance(result, Swapped):
            return unlike(result.version, after[self.key].version)
        return None

    def done(self, before: Entry, after: Entry) -> bool:
        return bool(before.version != after.version) or before.record != after.record


class Create(Write):
    """A record where there is none."""

    name = "swap: create"

    async def call(self) -> Any:
        return await self.lane.run(self.lane.store.swap, self.key, None, sample(1))


class Update(Write):
    """Another record than the one that is there."""

    name = "swap: update"

    async def prepare(self) -> None:
        written = self.lane.direct.swap(self.key, None, sample(1))
        assert isinstance(written, Swapped)
        self.version = written.version

    async def call(self) -> Any:
        return await self.lane.run(self.lane.store.swap, self.key, self.version, sample(2))


class ColdUpdate(Update):
    """The same with a new connection."""

    name = "swap: update (cold)"
    cold = True


class Drop(Update):
    """No record any more."""

    name = "swap: drop"

    async def call(self) -> Any:
        return await self.lane.run(self.lane.store.swap, self.key, self.version, None)


class ApplyOne(Operation):
    """A whole command."""

    name = "apply"
    kind = "write"

    @classmethod
    def fits(cls, store: Store) -> bool:
        return store.facts.scripted

    async def call(self) -> Any:
        return await self.lane.run(self.lane.store.apply, self.key, claim(), "beat")

    def words(self, result: Any) -> dict[str, str]:
        verdict = result.verdict
        return {self.key: "returned" if isinstance(verdict, Granted) else repr(verdict)}

    def done(self, before: Entry, after: Entry) -> bool:
        return bool(before.version != after.version)


class AmendOne(Operation):
    """A command that is decided while the store holds the record still."""

    name = "amend"
    kind = "write"

    @classmethod
    def fits(cls, store: Store) -> bool:
        return store.facts.amends

    async def prepare(self) -> None:
        self.lane.direct.swap(self.key, None, sample(1))

    async def call(self) -> Any:
        return await self.lane.run(self.lane.store.amend, self.key, _claimed)

    def words(self, result: Any) -> dict[str, str]:
        verdict = result.decision.verdict
        return {self.key: "returned" if isinstance(verdict, Granted) else repr(verdict)}

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return unlike(result.entry.version, after[self.key].version)

    def done(self, before: Entry, after: Entry) -> bool:
        return bool(before.version != after.version)


class AmendNew(AmendOne):
    """The same where there is no record yet."""

    name = "amend: create"

    async def prepare(self) -> None:
        """There is nothing to prepare."""


class ColdAmend(AmendOne):
    """The same with a new connection."""

    name = "amend (cold)"
    cold = True


def _claimed(entry: Entry) -> Decision:
    stamp = Stamp(entry.now.latest if entry.now else 0, "beat")
    return rules.decide(claim(), entry.record, rules.nobody, stamp)


class ColdApply(ApplyOne):
    """The same with a new connection."""

    name = "apply (cold)"
    cold = True


class Many(Operation):
    """A batch; each has an outcome of its own."""

    kind = "batch"
    faces = ("sync",)

    def __init__(self, lane: Lane) -> None:
        super().__init__(lane)
        self.keys = (f"{self.key}/a", f"{self.key}/b")

    def done(self, before: Entry, after: Entry) -> bool:
        return bool(before.version != after.version)

    def words(self, result: Any) -> dict[str, str]:
        return {key: self.word(one) for key, one in zip(self.keys, result, strict=True)}

    def word(self, outcome: Any) -> str:
        """Of one of them."""
        if isinstance(outcome, Exception):
            return word_for(outcome)
        return "returned" if isinstance(outcome, Swapped) else "conflict"


class SwapMany(Many):
    """Swaps."""

    name = "swap_many"

    async def prepare(self) -> None:
        self.swaps = []
        for key in self.keys:
            written = self.lane.direct.swap(key, None, sample(1))
            assert isinstance(written, Swapped)
            self.swaps.append(Swap(key, written.version, sample(2)))

    async def call(self) -> Any:
        return await self.lane.run(self.lane.store.swap_many, self.swaps)


class ApplyMany(Many):
    """Commands."""

    name = "apply_many"

    @classmethod
    def fits(cls, store: Store) -> bool:
        return store.facts.scripted

    async def call(self) -> Any:
        applies = [Apply(key, claim(), "beat") for key in self.keys]
        return await self.lane.run(self.lane.store.apply_many, applies)

    def word(self, outcome: Any) -> str:
        if isinstance(outcome, Exception):
            return word_for(outcome)
        return "returned" if isinstance(outcome.verdict, Granted) else repr(outcome.verdict)
