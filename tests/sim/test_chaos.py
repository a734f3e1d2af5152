"""ChaosStore: a store that goes wrong on purpose."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import aio
from holdfast.core.records import Record
from holdfast.errors import BadOption, LeaseLost, OutcomeUnknown, Unavailable
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ChaosStore

PAGE = Path(__file__).parent.parent.parent / "docs" / "testing.md"


def outcomes(store: ChaosStore, count: int) -> list[str]:
    """What becomes of so many loads."""
    seen = []
    for _ in range(count):
        try:
            store.load("k")
            seen.append("fine")
        except (OutcomeUnknown, Unavailable) as trouble:
            seen.append(str(trouble))
    return seen


def chaos(seed: int) -> ChaosStore:
    """A store with a bit of everything."""
    return ChaosStore(MemoryStore(), seed=seed, lose_requests=0.2, lose_replies=0.2, refuse=0.2)


@pytest.fixture
def lossy() -> Iterator[holdfast.Locks]:
    """Locks on a store that loses requests and replies."""
    store = ChaosStore(MemoryStore(), seed=3, lose_requests=0.2, lose_replies=0.2, refuse=0.1)
    with holdfast.connect(store) as locks:
        yield locks


def test_the_same_seed_makes_the_same_trouble() -> None:
    """And another seed makes another."""
    assert outcomes(chaos(1), 50) == outcomes(chaos(1), 50)
    assert outcomes(chaos(1), 50) != outcomes(chaos(2), 50)


def test_everything_goes_wrong_and_is_counted() -> None:
    """Each kind of trouble that is switched on happens."""
    store = chaos(1)
    seen = outcomes(store, 100)
    assert len(set(seen)) == 4
    assert set(store.happened) == {"lose_requests", "lose_replies", "refuse"}


def test_without_chances_it_is_the_store_itself() -> None:
    """Nothing goes wrong unless asked for."""
    store = ChaosStore(MemoryStore())
    assert outcomes(store, 30) == ["fine"] * 30
    assert not store.happened


def test_a_lost_reply_is_carried_out() -> None:
    """The write is there although no answer came."""
    store = ChaosStore(MemoryStore(), lose_replies=1.0)
    with pytest.raises(OutcomeUnknown):
        store.swap("k", None, Record(fence=5))
    assert store._store.load("k").record.fence == 5


def test_a_lost_request_is_not() -> None:
    """Nothing was written."""
    store = ChaosStore(MemoryStore(), lose_requests=1.0)
    with pytest.raises(OutcomeUnknown):
        store.swap("k", None, Record(fence=5))
    assert store._store.load("k").record.fence == 0


def test_locks_work_all_the_same(lossy: holdfast.Locks) -> None:
    """The protocol gets through losses on both ways."""
    fences = []
    for _ in range(20):
        with lossy.acquire("k") as lease:
            fences.append(lease.fence)
    assert fences == sorted(set(fences))


def test_a_lease_is_lost_on_command() -> None:
    """Its holder learns it, and the fence of the next one is larger."""
    store = ChaosStore(MemoryStore())
    with holdfast.connect(store, ttl=0.3) as locks:
        lease = locks.acquire("k")
        assert store.lose("k") == 1
        assert lease.lost.wait(5)
        with pytest.raises(LeaseLost):
            lease.check()
        assert locks.acquire("k").fence > lease.fence
        assert store.lose("nobody has this") == 0


def test_leases_are_lost_at_random() -> None:
    """With a chance of 1, every request of another evicts the holder."""
    store = ChaosStore(MemoryStore(), lose_leases=1.0)
    with holdfast.connect(store, ttl=5) as locks:
        first = locks.acquire("k")
        second = locks.acquire("k", timeout=1)
        assert second.fence > first.fence
        assert store.happened["lose_leases"] >= 2


def test_a_store_is_cut_off_and_mended() -> None:
    """In between it is unavailable, surely."""
    store = ChaosStore(MemoryStore())
    store.cut()
    with pytest.raises(Unavailable):
        store.load("k")
    store.mend()
    assert store.load("k").record.fence == 0


def test_delays_are_before_or_after() -> None:
    """Half of them hold up the request, half the reply."""
    slept: list[float] = []
    store = ChaosStore(MemoryStore(), seed=1, delay=1.0, longest_delay=0.5, sleep=slept.append)
    outcomes(store, 40)
    assert len(slept) == 40
    assert all(0 <= span <= 0.5 for span in slept)


async def _acquire_twice(store: ChaosStore) -> list[int]:
    async with aio.connect(store) as locks:
        fences = []
        for _ in range(2):
            async with await locks.acquire("k") as lease:
                fences.append(lease.fence)
        return fences


def test_asyncio_clients_use_it_too() -> None:
    """Through threads, as any store without a native asyncio face."""
    import asyncio

    first, second = asyncio.run(_acquire_twice(ChaosStore(MemoryStore(), seed=2, lose_replies=0.2)))
    assert second > first


@pytest.mark.parametrize("chance", [-0.1, 1.5])
def test_a_chance_is_between_nothing_and_certainty(chance: float) -> None:
    """Anything else is a mistake."""
    with pytest.raises(BadOption, match="lose_leases"):
        ChaosStore(MemoryStore(), lose_leases=chance)


@pytest.mark.parametrize("number", [0, 1])
def test_the_documented_example_works(tmp_path: Path, number: int) -> None:
    """The first examples of the page run as pasted."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = tmp_path / "test_example.py"
    program.write_text(blocks[number])
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(program)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stdout + run.stderr
