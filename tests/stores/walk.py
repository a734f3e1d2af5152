"""Walks every operation through every fault at every request, and compares words with deeds.

A *cell* is one call of one operation with one fault at its n-th exchange with the server; n goes
up until the call ends before the fault could happen. What the call said is compared with what is
in the store, as somebody sees it who talks to the server directly:

 1. What returned was done, and its answer is right.
 2. "Not done" (`Unavailable`) is true: nothing of the call is in the store, then or later.
 3. "Unknown" (`OutcomeUnknown`) may be either, and never comes from a call that only reads.
 4. Nothing else is raised, and nothing hangs.
 5. Right after it, the next calls of the same client work.
 6. What a failed call left behind is renewed by nobody and expires within its ttl.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from holdfast import Locks, aio
from holdfast.core.commands import Claim, Granted
from holdfast.core.contract import Entry, Swapped
from holdfast.core.effects import Apply, Swap
from holdfast.core.records import SECOND, Holder, Record
from holdfast.errors import HoldfastError, OutcomeUnknown, Unavailable
from holdfast.stores.base import Store
from tests.engines.one_fault import OneFaultProxy
from tests.helpers import unique

TTL_S = 6.0  # of whatever a failed call may leave behind; long enough for a busy machine
LONG_S = 300.0  # of what others hold meanwhile
PATIENT_S = 30.0  # a time-out that only a server which never answers can exceed
HANGS_S = 15.0  # who has not answered by then, though its time-out is short, never will
MOST_EXCHANGES = 40
WORKERS = 6
IDLE: dict[str, bool] = {"idle closed": False, "idle reset": True}  # and whether by a reset
REFUSED = ("refused", "refused after")
LATE = ("late reply", "late request")


@dataclass(frozen=True)
class Site:
    """A store's server, and how a place on it is reached through a port, with which patience."""

    port: int
    open: Callable[[str, int, float], Store]
    quick_s: float = 0.3  # a patience that is soon at its end


@dataclass(frozen=True)
class Seen:
    """What came of one cell."""

    operation: str
    kind: str
    fault: str
    at: int
    said: frozenset[str]  # of all its keys
    wrongs: tuple[str, ...] = ()  # which laws it broke, and how

    def __str__(self) -> str:
        said, wrongs = " and ".join(sorted(self.said)), "; ".join(self.wrongs)
        return f"{self.operation}, {self.fault} at {self.at}, said {said!r}: {wrongs}"


# --- who calls --------------------------------------------------------------------------------


class Lane:
    """A client of either face behind a proxy, and somebody who talks to the server directly."""

    def __init__(self, site: Site, face: str, fault: str, quick_s: float) -> None:
        self.face = face
        self.fault = fault
        place = unique()
        timeout_s = quick_s if fault in LATE else PATIENT_S
        self.direct = site.open(place, site.port, PATIENT_S)
        self.other = Locks(self.direct, owner="other", ttl=LONG_S)
        self.proxy = OneFaultProxy(site.port)
        self._open = lambda: site.open(place, self.proxy.port, timeout_s)
        self.locks: Any = None
        self.store: Any = None

    async def connect(self, *, warm: bool) -> None:
        """A new client, with new connections."""
        await self._disconnect()
        store = self._open()
        patience_s = 0.3 if self.fault in REFUSED else 20.0
        make: Any = Locks if self.face == "sync" else aio.Locks
        self.locks = make(store, owner="walker", ttl=TTL_S, store_patience=patience_s)
        self.store = store if self.face == "sync" else store.to_async()
        if warm:
            await self.run(self.store.load, "warm")
            lease = await self.run(self.locks.acquire, unique(), keep=False)
            await self.run(lease.release)

    async def _disconnect(self) -> None:
        if self.locks is not None:
            await self.run(self.locks.close)
            if self.face != "sync":
                await self.store.close()

    async def close(self) -> None:
        """Let go of all."""
        await self._disconnect()
        self.other.close()
        self.proxy.__exit__()

    async def run(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function of either face."""
        if self.face == "sync":
            return await asyncio.to_thread(call, *arguments, **options)
        answer = call(*arguments, **options)
        if hasattr(answer, "__aiter__"):
            return [one async for one in answer]
        return await answer if inspect.isawaitable(answer) else answer

    def look(self, keys: Sequence[str]) -> dict[str, Entry]:
        """What is in the store."""
        return {key: self.direct.load(key) for key in keys}


# --- what is called ---------------------------------------------------------------------------


class Operation(ABC):
    """One call, what has to be there before, and how to see whether it was done."""

    name: ClassVar[str]
    kind: ClassVar[str]
    cold: ClassVar[bool] = False  # on a connection that has yet to be made
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


class LoadOne(Read):
    """A record that is there."""

    name = "load"

    async def prepare(self) -> None:
        self.lane.direct.swap(self.key, None, sample(1))

    async def call(self) -> Any:
        return await self.lane.run(self.lane.store.load, self.key)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return _unlike(result.record, after[self.key].record)


class ColdLoad(LoadOne):
    """The same with a new connection."""

    name = "load (cold)"
    cold = True


class ScanAll(Read):
    """Two records."""

    name = "scan"

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
        return _unlike(
            {key: entry.record for key, entry in result},
            {key: entry.record for key, entry in after.items()},
        )


class Show(Read):
    """A lock that somebody holds."""

    name = "show"

    async def prepare(self) -> None:
        self.lease = self.lane.other.acquire(self.key, keep=False)

    async def call(self) -> Any:
        return await self.lane.run(self.lane.locks.show, self.key)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return _unlike([one.fence for one in result.holders], [self.lease.fence])


class ListAll(Show):
    """The same in a listing."""

    name = "list"

    async def call(self) -> Any:
        return await self.lane.run(lambda: _listed(self.lane.locks.list(self.key)))

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return _unlike([one.key for one in result], [self.key])


class Write(Operation):
    """One swap of the store's, without anybody who would try it again."""

    kind = "write"

    def words(self, result: Any) -> dict[str, str]:
        return {self.key: "returned" if isinstance(result, Swapped) else "conflict"}

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        if isinstance(result, Swapped):
            return _unlike(result.version, after[self.key].version)
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
        return _unlike((result.held, result.fence), (True, holder.fence))

    async def tidy(self, result: Any) -> str | None:
        return _unlike(await self.lane.run(result.release), True)


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
        return _unlike((result.held, [one.fence for one in result]), (True, fences))

    async def tidy(self, result: Any) -> str | None:
        await self.lane.run(result.release)
        left = self.lane.look(self.keys).values()
        return _unlike([entry.record.holders for entry in left], [(), ()])


class Held(Operation):
    """Something with a lease of this client's."""

    kind = "insist"
    keep: ClassVar[bool] = True

    async def prepare(self) -> None:
        self.lease = await self.lane.run(self.lane.locks.acquire, self.key, keep=self.keep)

    def done(self, before: Entry, after: Entry) -> bool:
        return _beats(before) != _beats(after)


class Renewal(Held):
    """Of a lease that the keeper does not renew."""

    name = "renew"
    kind = "renew"
    keep = False

    async def call(self) -> Any:
        await self.lane.run(self.lease.renew)

    async def tidy(self, result: Any) -> str | None:
        return _unlike(await self.lane.run(self.lease.release), True)


class Release(Held):
    """It is free."""

    name = "release"

    async def call(self) -> Any:
        return await self.lane.run(self.lease.release)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return _unlike(result, True)

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
        return _unlike(self.lane.other.take(result).release(), True)


class OfOthers(Operation):
    """Something with a lease of somebody else's."""

    kind = "insist"

    async def prepare(self) -> None:
        self.lease = self.lane.other.acquire(self.key, keep=False)

    def done(self, before: Entry, after: Entry) -> bool:
        return _beats(before) != _beats(after)


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
        return _unlike((result.held, [result.fence]), (True, fences))

    def mine(self, after: Entry) -> Holder | None:
        return next((one for one in after.record.holders if one.owner == "walker"), None)

    async def tidy(self, result: Any) -> str | None:
        return _unlike(await self.lane.run(result.release), True)


class Join(OfOthers):
    """One that is shared."""

    name = "join"

    async def prepare(self) -> None:
        await super().prepare()
        self.ticket = self.lease.share(release=True)

    async def call(self) -> Any:
        return await self.lane.run(self.lane.locks.join, self.ticket)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return _unlike((result.held, result.fence), (True, self.lease.fence))

    async def tidy(self, result: Any) -> str | None:
        return _unlike(await self.lane.run(result.release), True)


class Eviction(OfOthers):
    """The holder has to go."""

    name = "evict"

    async def call(self) -> Any:
        return await self.lane.run(self.lane.locks.evict, self.key)

    def wrong(self, result: Any, after: dict[str, Entry]) -> str | None:
        return _unlike([holder.fence for holder in result], [self.lease.fence])


class Purge(Operation):
    """Two records that nobody has used for long."""

    name = "purge"
    kind = "purge"

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
        return _unlike(result, 2)

    def done(self, before: Entry, after: Entry) -> bool:
        return after.version is None


OPERATIONS: tuple[type[Operation], ...] = (
    LoadOne, ColdLoad, ScanAll, Show, ListAll,
    Create, Update, ColdUpdate, Drop, ApplyOne, ColdApply, SwapMany, ApplyMany,
    TryAcquire, ColdTryAcquire, Acquire, AcquireAll,
    Renewal, Release, HandOver, Take, Join, Eviction, Purge,
)  # fmt: skip


def sample(fence: int) -> Record:
    """A record of a lock that is free."""
    return Record(fence=fence, updated_at=int(time.time()) * SECOND)


def claim() -> Claim:
    """A claim with a token of its own."""
    return Claim(unique(), "claimant", "exclusive", int(LONG_S) * SECOND)


def _beats(entry: Entry) -> list[str]:
    return [holder.beat for holder in entry.record.holders]


def _listed(locks: Any) -> Any:
    return locks if hasattr(locks, "__aiter__") else list(locks)


def _unlike(is_so: Any, should_be: Any) -> str | None:
    return None if is_so == should_be else f"{is_so!r} instead of {should_be!r}"


def word_for(trouble: BaseException) -> str:
    """What an error says of the outcome."""
    if isinstance(trouble, OutcomeUnknown):
        return "unknown"
    if isinstance(trouble, Unavailable):
        return "not done"
    return f"{type(trouble).__name__}: {trouble}"


# --- one cell ---------------------------------------------------------------------------------


@dataclass
class Cell:
    """One call with one fault."""

    operation: Operation
    at: int
    wrongs: list[str] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    result: Any = None
    returned: bool = False

    @property
    def lane(self) -> Lane:
        return self.operation.lane

    async def walk(self) -> bool:
        """False: the call was over before the fault could happen."""
        operation, proxy, fault = self.operation, self.lane.proxy, self.lane.fault
        await operation.prepare()
        if operation.cold:
            await self.lane.connect(warm=False)
        before = self.lane.look(operation.keys)
        if fault in IDLE:
            proxy.end_all(reset=IDLE[fault])
            await asyncio.sleep(0.01)
            proxy.arm(None, 0)
        else:
            proxy.arm(fault, self.at)  # type: ignore[arg-type]
        await self._call()
        proxy.heal()
        fired = fault in IDLE or proxy.fired
        after = self.lane.look(operation.keys)
        self._compare(before, after, "")
        await self._next_calls()
        if fault in LATE:
            proxy.let_go()
            after = self.lane.look(operation.keys)
            self._compare(before, after, " a moment later")
            await self._next_calls()
        if self.returned:
            self._note(operation.wrong(self.result, after), "the answer is wrong: ")
            await self._tidy()
        return fired

    async def _call(self) -> None:
        calling = asyncio.ensure_future(self.operation.call())
        done, _ = await asyncio.wait({calling}, timeout=HANGS_S)
        if not done:
            self._wrong("it hangs")
            self.lane.proxy.heal()
            self.lane.proxy.let_go()
        try:
            self.result = await calling
        except Exception as trouble:
            self.words = dict.fromkeys(self.operation.keys, word_for(trouble))
            if not isinstance(trouble, HoldfastError):
                self._wrong("this is no HoldfastError")
        else:
            self.words = self.operation.words(self.result)
            self.returned = True

    def _compare(self, before: dict[str, Entry], after: dict[str, Entry], when: str) -> None:
        for key, word in self.words.items():
            done = self.operation.done(before[key], after[key])
            if self.operation.kind == "read":
                if done:
                    self._wrong("something was written")
                if word == "unknown":
                    self._wrong("it only reads")
            elif word == "returned" and not done:
                self._wrong(f"it was not done{when}")
            elif word not in ("returned", "unknown") and done:
                self._wrong(f"it was done{when}")

    async def _next_calls(self) -> None:
        """The client goes on as if nothing had happened."""
        lane, key = self.lane, self.operation.keys[0]
        try:
            seen = await lane.run(lane.locks.show, key)
            fences = [holder.fence for holder in lane.direct.load(key).record.holders]
            self._note(_unlike([one.fence for one in seen.holders], fences), "show, next: ")
            lease = await lane.run(lane.locks.try_acquire, f"{key}/next", keep=False)
            self._note(_unlike(await lane.run(lease.release), True), "release, next: ")
        except Exception as trouble:
            self._wrong(f"the next call: {word_for(trouble)}")

    async def _tidy(self) -> None:
        try:
            self._note(await self.operation.tidy(self.result), "ending it: ")
        except Exception as trouble:
            self._wrong(f"ending it: {word_for(trouble)}")

    def _note(self, wrong: str | None, before: str) -> None:
        if wrong is not None:
            self._wrong(before + wrong)

    def _wrong(self, wrong: str) -> None:
        if wrong not in self.wrongs:
            self.wrongs.append(wrong)

    def seen(self, allowed: frozenset[str]) -> Seen:
        """What came of it."""
        operation, said = self.operation, frozenset(self.words.values())
        wrongs = list(self.wrongs)
        if not said <= allowed:
            wrongs.append(f"only {sorted(allowed)} would do")
        return Seen(operation.name, operation.kind, self.lane.fault, self.at, said, tuple(wrongs))


# --- the walk ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leftover:
    """What a call that failed has left, and when that was seen."""

    lane: Lane
    key: str
    holder: Holder
    seen_at: float
    who: Seen


Allowed = Callable[[str], frozenset[str]]  # which words an operation of this kind may say


class Walk:
    """All operations of one store and face with one fault, several of them at a time."""

    def __init__(self, site: Site, face: str, fault: str, allowed: Allowed) -> None:
        self.site = site
        self.face = face
        self.fault = fault
        self.seen: list[Seen] = []
        self._allowed = allowed
        self._leftovers: list[Leftover] = []
        self._troubles: list[BaseException] = []
        # All clients stay open until the end: a lease that one of them renews shows then.
        self._all_walked = threading.Barrier(WORKERS + 1)
        self._all_seen = threading.Event()

    def run(self, operations: Sequence[type[Operation]] = OPERATIONS) -> list[Seen]:
        """What came of every cell."""
        todo = deque(one for one in operations if self.face in one.faces)
        workers = [threading.Thread(target=self._work, args=(todo,)) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        self._all_walked.wait()
        self._look_after_leftovers()
        self._all_seen.set()
        for worker in workers:
            worker.join()
        if self._troubles:
            raise self._troubles[0]
        return self.seen

    def _work(self, todo: deque[type[Operation]]) -> None:
        async def run() -> None:
            lanes: list[Lane] = []
            try:
                while todo:
                    await self._walk(lanes, todo.popleft(), self.site.quick_s)
            except BaseException as trouble:
                self._troubles.append(trouble)
            await asyncio.to_thread(self._all_walked.wait)
            await asyncio.to_thread(self._all_seen.wait)
            for lane in lanes:
                await lane.close()

        asyncio.run(run())

    async def _walk(self, lanes: list[Lane], kind: type[Operation], quick_s: float) -> None:
        lane = Lane(self.site, self.face, self.fault, quick_s)
        if not kind.fits(lane.direct):
            lane.direct.close()
            return None
        lane.proxy.__enter__()
        lanes.append(lane)
        await lane.connect(warm=True)
        seen: list[Seen] = []
        for at in range(1, 2 if self.fault in IDLE else MOST_EXCHANGES):
            cell = Cell(kind(lane), at)
            fired = await cell.walk()
            if not fired and not cell.wrongs:
                break
            seen.append(cell.seen(self._allowed(kind.kind)))
            if not cell.returned:
                self._note_leftovers(cell, seen[-1])
            if seen[-1].wrongs and self.fault in LATE and quick_s == self.site.quick_s:
                # Perhaps the machine is busy, and what was not to be late was late, too.
                return await self._walk(lanes, kind, 5 * quick_s)
        else:
            assert self.fault in IDLE, f"{kind.name} has no end"
        self.seen += seen
        return None

    def _note_leftovers(self, cell: Cell, seen: Seen) -> None:
        for key in cell.operation.keys:
            holder = cell.operation.mine(cell.lane.direct.load(key))
            if holder is not None:
                self._leftovers.append(Leftover(cell.lane, key, holder, time.monotonic(), seen))

    def _look_after_leftovers(self) -> None:
        """A keeper renews three times per ttl: wait for longer than that, and look again."""
        for left in self._leftovers:
            time.sleep(max(0, left.seen_at + TTL_S / 2 - time.monotonic()))
            beats = _beats(left.lane.direct.load(left.key))
            if beats and left.holder.beat not in beats:
                self.seen.append(replace(left.who, wrongs=("it is renewed though it failed",)))
            elif left.holder.ttl > TTL_S * SECOND:
                self.seen.append(replace(left.who, wrongs=("its ttl is too long",)))
