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
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.core.contract import Entry
from holdfast.core.records import SECOND, Holder
from holdfast.errors import HoldfastError
from tests.stores.lane import LATE, TTL_S, Lane, Site
from tests.stores.operations import OPERATIONS, Operation, beats_of, unlike, word_for

HANGS_S = 15.0  # who has not answered by then, though its time-out is short, never will
MOST_EXCHANGES = 40
WORKERS = 6
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
            self._note(unlike([one.fence for one in seen.holders], fences), "show, next: ")
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
            beats = beats_of(left.lane.direct.load(left.key))
            if beats and left.holder.beat not in beats:
                self.seen.append(replace(left.who, wrongs=("it is renewed though it failed",)))
            elif left.holder.ttl > TTL_S * SECOND:
                self.seen.append(replace(left.who, wrongs=("its ttl is too long",)))
