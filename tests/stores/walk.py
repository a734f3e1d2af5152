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
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from holdfast.core.contract import Entry
from holdfast.core.holds import BEATS_PER_TTL
from holdfast.core.records import SECOND, Holder
from holdfast.errors import HoldfastError
from tests.helpers import unique
from tests.stores.lane import LATE, PATIENT_S, REFUSED, TTL_S, Direct, Lane, Lanes, Site
from tests.stores.operations import OPERATIONS, Operation, beats_of, unlike, word_for

T = TypeVar("T")
R = TypeVar("R")

BUSY = 8  # how many times more patience clients have where the machine is too slow for them
HANGS_S = 20.0  # who has not answered by then, though its time-out is shorter, never will
MOST_EXCHANGES = 40
MOST_BEATEN = 4  # times in a row
QUICK = SECOND // 2
# For how long calls insist on a server that refuses them, in microseconds.
INSISTS: ContextVar[int] = ContextVar("INSISTS", default=BUSY * QUICK)
WORKERS = 8  # they wait more than they work
IDLE: dict[str, bool] = {"idle closed": False, "idle reset": True}  # and whether by a reset


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
    exchanges: int = 0  # how many the call took
    fired: bool = False  # or it was over before the fault could happen

    @property
    def lane(self) -> Lane:
        return self.operation.lane

    async def walk(self) -> None:
        """From what has to be there before to the calls that come after it."""
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
            # Those of the client before may still say goodbye.
            proxy.arm(fault, self.at, only_new=operation.cold)  # type: ignore[arg-type]
        await self._call()
        proxy.heal()
        self.exchanges = proxy.exchanges
        self.fired = fault in IDLE or proxy.fired
        after = self.lane.look(operation.keys)
        self._compare(before, after, "")
        await self._next_call(after)
        if fault in LATE:
            proxy.let_go()
            after = self.lane.look(operation.keys)
            self._compare(before, after, " a moment later")
            await self._next_call(after)
        if self.returned:
            self._note(operation.wrong(self.result, after), "the answer is wrong: ")
            await self._tidy()

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

    async def _next_call(self, after: dict[str, Entry]) -> None:
        """The client goes on as if nothing had happened."""
        lane, key = self.lane, self.operation.keys[0]
        try:
            loaded = await lane.run(lane.store.load, key)
            # A keeper may have renewed it in between; but nobody else may have it.
            self._note(unlike(_who(loaded), _who(after[key])), "load, next: ")
            if not self.returned and self.operation.kind != "read":
                lease = await lane.run(lane.locks.try_acquire, f"{key}/next", keep=False)
                self._note(unlike(await lane.run(lease.release), True), "release, next: ")
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

    def leftovers(self, seen: Seen) -> list[Leftover]:
        """What a call that failed has left of a lease."""
        if self.returned:
            return []
        operation, now = self.operation, time.monotonic()
        holders = {key: operation.mine(self.lane.direct.load(key)) for key in operation.keys}
        return [Leftover(key, one, now, seen) for key, one in holders.items() if one is not None]

    def seen(self, allowed: frozenset[str]) -> Seen:
        """What came of it."""
        operation, said = self.operation, frozenset(self.words.values())
        wrongs = list(self.wrongs)
        if not self.fired:
            allowed = frozenset({"returned"})
        if not said <= allowed:
            wrongs.append(f"only {sorted(allowed)} would do")
        return Seen(operation.name, operation.kind, self.lane.fault, self.at, said, tuple(wrongs))


def _who(entry: Entry) -> tuple[int, list[tuple[str, int]]]:
    return entry.record.fence, [(one.token, one.fence) for one in entry.record.holders]


@dataclass(frozen=True)
class Leftover:
    """What a call that failed has left, and when that was seen."""

    key: str
    holder: Holder
    seen_at: float
    who: Seen

    async def look_again(self, lane: Lane) -> list[Seen]:
        """What is wrong with it. A keeper renews three times per ttl: wait for longer than that."""
        beaten_at = self.seen_at + 1.2 * TTL_S / BEATS_PER_TTL
        await asyncio.sleep(max(0, beaten_at - time.monotonic()))
        beats = beats_of(lane.direct.load(self.key))
        if beats and self.holder.beat not in beats:
            return [replace(self.who, wrongs=("it is renewed though it failed",))]
        if self.holder.ttl > TTL_S * SECOND:
            return [replace(self.who, wrongs=("its ttl is too long",))]
        return []


# --- the walk ---------------------------------------------------------------------------------


Allowed = Callable[[str], frozenset[str]]  # which words an operation of this kind may say


class Task(NamedTuple):
    """One operation with the fault at one exchange; and at all that follow, if `on`."""

    operation: type[Operation]
    at: int
    on: bool = True


class Walk:
    """All operations of one store and face with one fault, several of them at a time."""

    def __init__(self, site: Site, face: str, fault: str, allowed: Allowed) -> None:
        self._site = site
        self._face = face
        self._fault = fault
        self._allowed = allowed
        self._place = unique()

    def run(self, operations: Sequence[type[Operation]] = OPERATIONS) -> list[Seen]:
        """What came of every cell."""
        with self._site.look(self._place) as direct:
            kinds = [
                one for one in operations if self._face in one.faces and one.fits(direct.store)
            ]
            if self._fault in LATE:
                # They take so long that several work on the exchanges of one operation.
                tasks = self._each(direct, self._count, kinds)
            else:
                tasks = [Task(kind, 1) for kind in kinds]
            return self._each(direct, self._walk, tasks)

    def _each(
        self, direct: Direct, walk: Callable[[Lanes, T], Awaitable[list[R]]], things: Sequence[T]
    ) -> list[R]:
        """What all of these come to."""
        todo, found = deque(things), list[R]()

        async def work() -> None:
            async with Lanes(self._site, self._face, self._fault, direct, self._place) as lanes:
                while (thing := _taken(todo)) is not None:
                    found.extend(await walk(lanes, thing))

        with ThreadPoolExecutor(WORKERS) as pool:
            for worker in [pool.submit(lambda: asyncio.run(work())) for _ in range(WORKERS)]:
                worker.result()
        return found

    async def _count(self, lanes: Lanes, kind: type[Operation]) -> list[Task]:
        async with lanes.lane(BUSY * self._site.quick_s, lists=kind.lists) as lane:
            cell = Cell(kind(lane), MOST_EXCHANGES)
            await cell.walk()
        alone = [Task(kind, at, on=False) for at in range(1, cell.exchanges + 1)]
        return [*alone, Task(kind, cell.exchanges + 1)]

    async def _walk(self, lanes: Lanes, task: Task) -> list[Seen]:
        if self._fault in LATE or self._fault in REFUSED:
            INSISTS.set(QUICK)
            with suppress(HoldfastError):  # also while all was to go well
                seen = await self._walk_lane(lanes, task, self._timeout_s(1))
                if not any(one.wrongs for one in seen):
                    return seen
            # Perhaps the machine is busy, and what was not to be late was late, too.
            INSISTS.set(BUSY * QUICK)
        return await self._walk_lane(lanes, task, self._timeout_s(BUSY))

    def _timeout_s(self, times: int) -> float:
        return times * self._site.quick_s if self._fault in LATE else PATIENT_S

    async def _walk_lane(self, lanes: Lanes, task: Task, timeout_s: float) -> list[Seen]:
        seen: list[Seen] = []
        leftovers: list[Leftover] = []
        async with lanes.lane(timeout_s, lists=task.operation.lists) as lane:
            for at in range(task.at, MOST_EXCHANGES):
                cell, one = await self._walk_cell(lane, task.operation, at)
                if cell.fired or one.wrongs:
                    seen.append(one)
                    leftovers += cell.leftovers(one)
                if not cell.fired or not task.on or self._fault in IDLE:
                    break
            else:
                raise AssertionError(f"{task.operation.name} has no end")
            for left in leftovers:
                seen += await left.look_again(lane)
        return seen

    async def _walk_cell(self, lane: Lane, kind: type[Operation], at: int) -> tuple[Cell, Seen]:
        """On a busy machine a keeper may beat in the middle of it: then it has to be done again."""
        for _ in range(MOST_BEATEN):
            cell = Cell(kind(lane), at)
            beats_at = time.monotonic() + TTL_S / BEATS_PER_TTL
            await cell.walk()
            seen = cell.seen(self._allowed(kind.kind))
            if not seen.wrongs or time.monotonic() < beats_at:
                break
        return cell, seen


def _taken(todo: deque[T]) -> T | None:
    try:
        return todo.popleft()
    except IndexError:
        return None
