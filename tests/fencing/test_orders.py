"""Two transactions of an old and a new holder, in every order of admit, write, and commit or
rollback: what is committed is what the old one and then the new one would have given."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy import exc as sa

from holdfast import StaleFence, fencing
from holdfast.fencing import Fence
from tests.fencing.sql_ways import Site
from tests.helpers import unique

LEVELS = [
    *(("postgresql", level) for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")),
    *(("mysql", level) for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")),
    ("sqlite", "SERIALIZABLE"),
]
STEPS = ("admit", "write", "end")
ENDS = [("commit", "commit"), ("rollback", "commit"), ("commit", "rollback")]
# How long a step may take before the other party goes on. If it was not waiting for the other but
# only slow, the order is another one than planned, which is as good.
MAY_WAIT_S = 0.02
OLD, NEW = 1, 2


class Party(threading.Thread):
    """A holder with a transaction, in a thread that does one step after another when told."""

    guarded = True

    def __init__(self, connection: Connection, key: str, fence: int, end: str) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self._fence = Fence(key, fence)
        self._end = end
        self._told: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._done = threading.Semaphore(0)
        self.outcome: str | BaseException = "open"

    def step(self, name: str) -> None:
        """Do this next; come back when it is done or seems to wait."""
        self._told.put(name)
        self._done.acquire(timeout=MAY_WAIT_S)

    def run(self) -> None:
        while (name := self._told.get()) is not None:
            try:
                if self.outcome == "open":
                    self._do(name)
            except (StaleFence, sa.DBAPIError) as exc:
                self.outcome = exc
                self._connection.rollback()
            except BaseException as exc:
                self.outcome = exc
            self._done.release()

    def _do(self, name: str) -> None:
        connection = self._connection
        if name == "admit" and self.guarded:
            fencing.sql.admit(connection, self._fence)
        elif name == "admit":
            connection.execute(text("SELECT 1"))
        elif name == "write":
            # What was read decides what is written, as in most programs.
            key = {"key": self._fence.key}
            value = connection.scalar(text("SELECT value FROM cell WHERE id = :key"), key)
            new = {"value": f"{value}{self._fence.fence}", **key}
            connection.execute(text("UPDATE cell SET value = :value WHERE id = :key"), new)
        elif self._end == "commit":
            connection.commit()
            self.outcome = "commit"
        else:
            connection.rollback()
            self.outcome = "rollback"

    def finish(self) -> None:
        """Wait until all is done."""
        self._told.put(None)
        self.join(60)
        assert not self.is_alive()


def orders() -> Iterator[list[int]]:
    """Every order of three steps of each of two parties."""
    for places in itertools.combinations(range(6), 3):
        yield [OLD if place in places else NEW for place in range(6)]


def play(engine: Engine, order: list[int], ends: tuple[str, str]) -> tuple[str, Any, Any]:
    """One history. Returns what the cell has at the end, and how each party ended."""
    key = unique()
    with engine.begin() as tx:
        tx.execute(text("INSERT INTO cell (id, value) VALUES (:key, '')"), {"key": key})
    with engine.connect() as first, engine.connect() as second:
        parties = {OLD: Party(first, key, OLD, ends[0]), NEW: Party(second, key, NEW, ends[1])}
        for party in parties.values():
            party.start()
        left = {OLD: list(STEPS), NEW: list(STEPS)}
        for who in order:
            parties[who].step(left[who].pop(0))
        for party in parties.values():
            party.finish()
    with engine.begin() as tx:
        value = tx.scalar(text("SELECT value FROM cell WHERE id = :key"), {"key": key})
    return value, parties[OLD].outcome, parties[NEW].outcome


def engine_on(site: Site, level: str) -> Engine:
    """An application's connections, with a table for what the parties write."""
    with site.root() as tx:
        tx.execute(
            text("CREATE TABLE IF NOT EXISTS cell (id varchar(99) PRIMARY KEY, value varchar(99))")
        )
    return create_engine(site.url(), isolation_level=level, connect_args=site.patience)


def committed(old: Any, new: Any) -> str:
    """What the cell must have, if these are the endings."""
    return "".join(str(who) for who, how in ((OLD, old), (NEW, new)) if how == "commit")


@pytest.mark.parametrize(("kind", "level"), LEVELS)
def test_every_order(kind: str, level: str, tmp_path: Path) -> None:
    """What is committed is in the order of the fences; nobody but the old one is stale; and an
    engine's refusals (a deadlock, a serialization failure) are the engine's errors."""
    engine = engine_on(Site(kind, tmp_path), level)
    stale = both = 0
    for order, ends in itertools.product(orders(), ENDS):
        value, old, new = play(engine, order, ends)
        for outcome in (old, new):
            assert isinstance(outcome, (str, StaleFence, sa.DBAPIError)), outcome
        assert not isinstance(new, StaleFence)
        assert value == committed(old, new), (order, ends, old, new)
        stale += isinstance(old, StaleFence)
        both += value == committed("commit", "commit")
    engine.dispose()
    assert stale
    assert both


def test_the_same_without_a_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new holder's write is overwritten or lost, so the test above can fail."""
    monkeypatch.setattr(Party, "guarded", False)
    engine = engine_on(Site("postgresql", tmp_path), "READ COMMITTED")
    histories = [play(engine, order, ENDS[0]) for order in orders()]
    engine.dispose()
    assert any(value != committed(old, new) for value, old, new in histories)
