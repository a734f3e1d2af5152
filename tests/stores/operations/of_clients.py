"""The operations of a client and of its leases."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from holdfast.core.contract import Entry
from holdfast.core.records import SECOND, Holder, Record
from tests.stores.lane import TTL_S, Lane
from tests.stores.operations.base import Operation, Read, beats_of, unlike


class Show(Read):
    """A lock that somebody holds."""

    name = "show"

    async def prepare(self) -> None:
        self.lease = self.lane.other.acquire(self.key, keep=False)

    async def call(self) -> Any:
        return await self.lane.run(self.lane.locks.show, self.key)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return unlike([one.fence for one in result.holders], [self.lease.fence])


class ListAll(Show):
    """The same in a listing."""

    name = "list"
    lists = True

    async def call(self) -> Any:
        return await self.lane.run(lambda: _listed(self.lane.locks.list(self.key)))

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return unlike([one.key for one in result], [self.key])


class Claiming(Operation):
    """A claim of this client's."""

    kind = "wait"

    def __init__(self, lane: Lane) -> None:
        super().__init__(lane)
        self.owner = f"claimant of {self.key}"

    def done(self, before: Entry, after: Entry) -> bool:
        parties: tuple[Any, ...] = (*after.record.holders, *after.record.queue)
        return any(party.owner == self.owner for party in parties)

    def mine(self, after: Entry) -> Holder | None:
        for holder in after.record.holders:
            if holder.owner == self.owner:
                return holder
        return None

    def words(self, result: Any) -> dict[str, str]:
        return dict.fromkeys(self.keys, "None" if result is None else "returned")

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        holder = self.mine(after[self.key])
        if result is None or holder is None:
            return None  # that is told elsewhere
        return unlike((result.held, result.fence), (True, holder.fence))

    async def tidy(self, result: Any) -> str | None:
        return unlike(await self.lane.run(result.release), True)


class TryAcquire(Claiming):
    """Without waiting."""

    name = "try_acquire"
    kind = "try"

    async def call(self) -> Any:
        return await self.lane.run(self.lane.locks.try_acquire, self.key, owner=self.owner)


class ColdTryAcquire(TryAcquire):
    """The same with a new connection."""

    name = "try_acquire (cold)"
    cold = True


class Acquire(Claiming):
    """With waiting."""

    name = "acquire"

    async def call(self) -> Any:
        return await self.lane.run(self.lane.locks.acquire, self.key, owner=self.owner)


class AcquireAll(Claiming):
    """Two."""

    name = "acquire_all"

    def __init__(self, lane: Lane) -> None:
        super().__init__(lane)
        self.keys = (f"{self.key}/a", f"{self.key}/b")

    async def call(self) -> Any:
        return await self.lane.run(self.lane.locks.acquire_all, self.keys, owner=self.owner)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        holders = [self.mine(after[key]) for key in self.keys]
        fences = [holder.fence for holder in holders if holder is not None]
        return unlike((result.held, [one.fence for one in result]), (True, fences))

    async def tidy(self, result: Any) -> str | None:
        await self.lane.run(result.release)
        left = self.lane.look(self.keys).values()
        return unlike([entry.record.holders for entry in left], [(), ()])


class Held(Operation):
    """Something with a lease of this client's."""

    kind = "insist"
    keep: ClassVar[bool] = True

    async def prepare(self) -> None:
        self.lease = await self.lane.run(self.lane.locks.acquire, self.key, keep=self.keep)

    def done(self, before: Entry, after: Entry) -> bool:
        return beats_of(before) != beats_of(after)


class Renewal(Held):
    """Of a lease that the keeper does not renew."""

    name = "renew"
    kind = "renew"
    keep = False

    async def call(self) -> Any:
        await self.lane.run(self.lease.renew)

    async def tidy(self, result: Any) -> str | None:
        return unlike(await self.lane.run(self.lease.release), True)


class Release(Held):
    """It is free."""

    name = "release"

    async def call(self) -> Any:
        return await self.lane.run(self.lease.release)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return unlike(result, True)

    def done(self, before: Entry, after: Entry) -> bool:
        return not after.record.holders

    def mine(self, after: Entry) -> Holder | None:
        return next(iter(after.record.holders), None)


class HandOver(Release):
    """It waits for the next one."""

    name = "hand_over"

    async def call(self) -> Any:
        return await self.lane.run(self.lease.hand_over)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return None

    def done(self, before: Entry, after: Entry) -> bool:
        return any(holder.offered for holder in after.record.holders)

    async def tidy(self, result: Any) -> str | None:
        return unlike(self.lane.other.take(result).release(), True)


class OfOthers(Operation):
    """Something with a lease of somebody else's."""

    kind = "insist"

    async def prepare(self) -> None:
        self.lease = self.lane.other.acquire(self.key, keep=False)

    def done(self, before: Entry, after: Entry) -> bool:
        return beats_of(before) != beats_of(after)


class Take(OfOthers):
    """One that was handed over."""

    name = "take"

    async def prepare(self) -> None:
        await super().prepare()
        self.ticket = self.lease.hand_over()

    async def call(self) -> Any:
        return await self.lane.run(self.lane.locks.take, self.ticket, ttl=TTL_S)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        fences = [holder.fence for holder in after[self.key].record.holders]
        return unlike((result.held, [result.fence]), (True, fences))

    def mine(self, after: Entry) -> Holder | None:
        return next((one for one in after.record.holders if one.owner == "walker"), None)

    async def tidy(self, result: Any) -> str | None:
        return unlike(await self.lane.run(result.release), True)


class Join(OfOthers):
    """One that is shared."""

    name = "join"

    async def prepare(self) -> None:
        await super().prepare()
        self.ticket = self.lease.share(release=True)

    async def call(self) -> Any:
        return await self.lane.run(self.lane.locks.join, self.ticket)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return unlike((result.held, result.fence), (True, self.lease.fence))

    async def tidy(self, result: Any) -> str | None:
        return unlike(await self.lane.run(result.release), True)


class Eviction(OfOthers):
    """The holder has to go."""

    name = "evict"

    async def call(self) -> Any:
        return await self.lane.run(self.lane.locks.evict, self.key)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return unlike([holder.fence for holder in result], [self.lease.fence])


class Purge(Operation):
    """Two records that nobody has used for long."""

    name = "purge"
    kind = "purge"
    lists = True

    def __init__(self, lane: Lane) -> None:
        super().__init__(lane)
        self.keys = (f"{self.key}/a", f"{self.key}/b")

    async def prepare(self) -> None:
        then = (int(time.time()) - 2 * 3600) * SECOND
        for key in self.keys:
            self.lane.direct.swap(key, None, Record(fence=then, updated_at=then))

    async def call(self) -> Any:
        return await self.lane.run(self.lane.locks.purge, self.key, older_than=3600)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return unlike(result, 2)

    def done(self, before: Entry, after: Entry) -> bool:
        return after.version is None


def _listed(locks: Any) -> Any:
    return locks if hasattr(locks, "__aiter__") else list(locks)
