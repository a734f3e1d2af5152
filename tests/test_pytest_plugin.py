"""The plugin for users' tests: its store, its losses and its clock."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import holdfast
from holdfast import AcquireTimeout, LeaseLost, Locks, Unavailable, aio, events
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ChaosStore, HandClock, use_store
from tests.helpers import unique, until


def test_a_loss_is_noticed_at_once(holdfast_locks: Locks, holdfast_chaos: ChaosStore) -> None:
    """Not at the next beat: the lease has a ttl of an hour."""
    lost = threading.Event()
    lease = holdfast_locks.acquire("k", ttl=3600)
    lease.on_lost(lambda _: lost.set())
    assert holdfast_chaos.lose("k") == 1
    assert lease.lost.is_set()
    assert lost.wait(20)
    with pytest.raises(LeaseLost, match="lost on purpose"):
        lease.check()
    assert holdfast_chaos.lose("k") == 0


def test_the_same_with_asyncio(holdfast_aio_locks: aio.Locks, holdfast_chaos: ChaosStore) -> None:
    """An asyncio lease is told on its loop."""

    async def main() -> None:
        async with asyncio.timeout(30):
            lease = await holdfast_aio_locks.acquire("k", ttl=3600)
            holdfast_chaos.lose("k")
            await lease.lost.wait()
            with pytest.raises(LeaseLost):
                await lease.renew()

    asyncio.run(main())


def test_a_connect_that_failed_does_no_harm() -> None:
    """Its half-made client lives on in the traceback that a test has kept."""
    with pytest.raises(holdfast.BadOption) as kept:
        holdfast.connect("memory://", ttl=-1)
    with use_store(ChaosStore(MemoryStore())), holdfast.connect() as locks:
        assert locks.try_acquire("k") is not None
    assert kept.tb is not None


def test_a_store_behind_code_that_connects_by_itself(holdfast_locks: Locks) -> None:
    """Whatever URL it names."""
    with holdfast.connect() as locks, holdfast.connect("redis://nowhere:1/0") as others:
        with holdfast_locks.acquire("k"):
            assert locks.try_acquire("k") is None
            assert others.try_acquire("k") is None

    async def main() -> None:
        async with aio.connect("postgresql://nowhere/db") as locks:
            async with locks.acquire("k"):
                assert holdfast_locks.try_acquire("k") is None

    asyncio.run(main())


def test_a_store_behind_clients_that_were_made_before(tmp_path: Path) -> None:
    """As at the top of a module, also with @guard; afterwards they have their own store again."""
    from holdfast.stores.memory import MemoryStore

    with holdfast.connect(f"sqlite:///{tmp_path / 'locks.db'}") as locks:

        @locks.guard("k", busy="skip")
        def job() -> str:
            return "done"

        with locks.acquire("k"):
            with use_store(MemoryStore()):
                assert job() == "done"
                left = locks.acquire("left over")
            assert job() is None
            assert locks.try_acquire("left over") is not None
        assert not left.held


def test_a_client_that_is_first_needed_in_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """`guard` without a client uses the test's store in the test, and its own afterwards."""
    from holdfast.stores.memory import MemoryStore

    url = f"memory://{unique()}"
    monkeypatch.setenv("HOLDFAST_URL", url)
    monkeypatch.setattr("holdfast.api.default._default_locks._locks", None)

    @holdfast.guard("k", busy="skip")
    def job() -> str:
        return "done"

    with holdfast.connect(url) as locks, locks.acquire("k"):
        with use_store(MemoryStore()):
            assert job() == "done"
        assert job() is None


def test_lazy_objects_of_others_stay_lazy() -> None:
    """Whoever looks for clients among all objects evaluates none, as Django's `request.user`."""
    from holdfast.stores.memory import MemoryStore

    evaluated = []

    class Lazy:
        @property
        def __class__(self) -> type:
            evaluated.append(self)
            return Lazy

        @__class__.setter
        def __class__(self, kind: type) -> None:
            pass

    lazy = Lazy()
    with use_store(MemoryStore()):
        pass
    assert not evaluated
    assert isinstance(lazy, Lazy)


def test_an_hour_passes_in_a_moment(holdfast_locks: Locks, holdfast_time: HandClock) -> None:
    """A dead holder's ttl is over, and whoever waits for it gets the lock."""
    got: list[float] = []
    holdfast_locks.acquire("k", ttl=3600, keep=False)
    began = time.monotonic()
    waiter = threading.Thread(
        target=lambda: got.append(holdfast_locks.acquire("k", timeout=7200).hold.waited / 1e6)
    )
    waiter.start()
    until(lambda: holdfast_locks.show("k").waiters or time.monotonic() - began > 3)
    holdfast_time.advance(3601)
    until(lambda: got)
    waiter.join(20)
    assert got[0] >= 3590
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("owner", ["test", "another client"])
def test_a_timeout_passes_in_a_moment(
    holdfast_locks: Locks, holdfast_chaos: ChaosStore, holdfast_time: HandClock, owner: str
) -> None:
    """However late the waiter is woken: it timed out, and the store is not to blame."""
    raised: list[BaseException] = []
    waiting = threading.Event()

    def told(event: events.Event) -> None:
        if isinstance(event, events.Waiting):
            waiting.set()

    def wait(locks: Locks) -> None:
        try:
            locks.acquire("k", timeout=600)
        except holdfast.HoldfastError as exc:
            raised.append(exc)

    with Locks(holdfast_chaos, owner="another client", on_event=told) as another:
        kept = (holdfast_locks if owner == "test" else another).acquire("k", ttl=7200)
        waiter = threading.Thread(target=wait, args=(another,))
        waiter.start()
        assert waiting.wait(60)
        holdfast_time.advance(3600)
        waiter.join(60)
        assert kept.held
    assert [type(one) for one in raised] == [AcquireTimeout]


def test_a_lease_is_renewed_while_time_passes(
    holdfast_chaos: ChaosStore, holdfast_time: HandClock
) -> None:
    """A day with a ttl of ten minutes; then the store is cut off: danger, and the loss."""
    told: list[object] = []
    with Locks(holdfast_chaos, on_event=told.append, ttl=600) as locks:
        lease = locks.acquire("k")
        holdfast_time.advance(24 * 3600)
        assert lease.held
        renewals = sum(isinstance(event, events.Renewed) for event in told)
        assert 300 < renewals < 700
        lease.renew()
        holdfast_chaos.cut()
        holdfast_time.advance(500)
        assert lease.held
        assert any(isinstance(event, events.InDanger) for event in told)
        with pytest.raises(Unavailable):
            locks.show("k")
        holdfast_time.advance(500)
        assert not lease.held
        until(lambda: any(isinstance(event, events.Lost) for event in told))
        holdfast_chaos.mend()
        with locks.acquire("k", timeout=1000):
            pass


def test_time_is_as_before_afterwards() -> None:
    """The clock of the process is put back."""
    from holdfast.runtime import clock

    before = clock.monotonic(), clock.wall()
    with HandClock() as moved:
        moved.advance(1e6)
        assert clock.monotonic() - before[0] >= 1e12
    assert clock.monotonic() - before[0] < 1e9
    assert clock.wall() - before[1] < 1e9


def test_pytest_finds_the_fixtures(tmp_path: Path) -> None:
    """A user's test needs no import and no conftest."""
    (tmp_path / "test_theirs.py").write_text(
        "import holdfast\n"
        "locks = holdfast.connect('memory://theirs')\n"
        "@locks.guard('job', busy='skip')\n"
        "def job(): return 'done'\n"
        "def test_skips(holdfast_locks, holdfast_time):\n"
        "    holdfast_locks.acquire('job', ttl=3600, keep=False)\n"
        "    assert job() is None\n"
        "    holdfast_time.advance(3700)\n"
        "    assert job() == 'done'\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:pytest-mops",
         "-p", "no:valkey", str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
