"""`null://`: no locks, said loudly, and nothing that a program does under a lock breaks."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator

import pytest

import holdfast
from holdfast import Locks, aio
from holdfast.stores.null import LocksDisabled, NullStore
from tests.helpers import until


@pytest.fixture
def locks() -> Iterator[Locks]:
    """A client without locks."""
    with Locks(NullStore(), ttl=60) as client:
        yield client


@pytest.mark.parametrize("url", [None, "null://", "null:"])
def test_it_warns(url: str | None) -> None:
    """Connecting says that nothing is protected, and where it was called from."""
    for connect in (holdfast.connect, aio.connect):
        with pytest.warns(LocksDisabled, match="nothing is protected.*HOLDFAST_URL") as caught:
            connect(url)
        assert caught[0].filename == __file__


def test_it_warns_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the environment says so."""
    monkeypatch.setenv("HOLDFAST_URL", "null://")
    with pytest.warns(LocksDisabled) as caught:
        holdfast.connect()
    assert caught[0].filename == __file__


def test_everything_is_granted(locks: Locks) -> None:
    """Every claim gets in at once, beside every other, and every release is fine."""
    with locks.acquire("k", timeout=0) as a, locks.acquire("k", timeout=0) as b:
        assert b.fence > a.fence
        with locks.acquire("k", mode="shared"), locks.acquire("k", limit=2):
            assert locks.try_acquire("k") is not None
    with locks.acquire_all(["a", "b"]) as one, locks.acquire_all(["b", "a"]) as two:
        assert one.held
        assert two.held


def test_nested_leases_live_on(locks: Locks) -> None:
    """A second lease on the same key costs the first one nothing, at any beat or release."""
    a = locks.acquire("k")
    b = locks.acquire("k")
    a.renew()
    b.renew()
    assert b.release() is True
    a.renew()
    assert a.release() is True
    assert a.release() is False


def test_kept_for_long(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease is kept though the last reading of the clock is long ago."""
    monkeypatch.setattr("holdfast.core.validity.READING_GOOD_FOR", -1)
    with locks.acquire("k", ttl=0.4) as lease:
        until(lambda: lease.hold.renewed > lease.hold.acquired + 500_000)
        assert lease.held


def test_tickets_work(locks: Locks) -> None:
    """Sharing and handing over go through, also to another process that knows nothing."""
    first = locks.acquire("k", note={"x": 1})
    joined = locks.join(first.share(release=True))
    assert joined.fence == first.fence
    ticket = first.hand_over()
    second = locks.take(ticket, owner="me")
    assert (second.owner, second.note) == ("me", {"x": 1})
    assert second.fence > first.fence
    with Locks(NullStore()) as elsewhere:
        lease = locks.acquire("k")
        share, handed = lease.share(), lease.hand_over()
        assert elsewhere.join(share).held
        assert elsewhere.take(handed).held


def test_nothing_is_seen(locks: Locks) -> None:
    """There is nothing to see, to evict or to purge."""
    with locks.acquire("k"):
        assert locks.show("k").free
        assert list(locks.holders()) == []
        assert locks.evict("k") == ()
        assert locks.purge() == 0


def test_async() -> None:
    """The same for asyncio."""

    async def run() -> None:
        async with aio.Locks(NullStore(), ttl=60) as locks:
            async with locks.acquire("k") as a, locks.acquire("k") as b:
                await a.renew()
                assert b.held
            async with locks.acquire_all(["a", "b"]):
                pass

    asyncio.run(run())


def test_it_forgets() -> None:
    """What was released leaves nothing behind."""
    store = NullStore()
    with Locks(store) as locks, warnings.catch_warnings():
        for _ in range(100):
            with locks.acquire("k"):
                pass
        locks.take(locks.acquire("k").hand_over()).release()
        assert len(store._holders) == 0
