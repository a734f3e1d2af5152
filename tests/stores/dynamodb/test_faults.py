"""A server that crashes, freezes and comes back, and replies that get lost on the way."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import SSLError

import holdfast
from holdfast import aio
from holdfast.api.leases import Lease
from holdfast.api.locks import Locks
from holdfast.core.contract import Swapped
from holdfast.core.records import Record
from holdfast.errors import LeaseLost, Misconfigured, OutcomeUnknown, Unavailable
from holdfast.stores.dynamodb import DynamoDBStore
from tests.engines.dynamodb import DynamoDBLocal, session
from tests.engines.proxy import Mode, Proxy
from tests.engines.tls import TLSFront, new_certificate
from tests.helpers import until
from tests.stores.dynamodb.lab import Lab

pytestmark = pytest.mark.timeout(120)


def behind(lab: Lab) -> Proxy:
    """A proxy before a server."""
    return Proxy(int(lab.endpoint.rpartition(":")[2]))


def through(lab: Lab, proxy: Proxy, table: str, **options: Any) -> DynamoDBStore:
    """A store that talks through the proxy."""
    endpoint = f"http://127.0.0.1:{proxy.port}"
    return lab.open(table, endpoint_url=endpoint, **{"timeout_s": 1, **options})


# --- replies that get lost ------------------------------------------------------------------


def test_reset_after_a_write(any_lab: Lab) -> None:
    """A write whose reply is reset is unknown; it was done, and a load finds it."""
    table = any_lab.store().options.table
    with behind(any_lab) as proxy:
        store = through(any_lab, proxy, table)
        store.load("k")
        proxy.mode = "reset replies"
        with pytest.raises(OutcomeUnknown) as caught:
            store.swap("k", None, Record(7))
        assert caught.value.__cause__ is not None
        with pytest.raises(Unavailable):
            store.load("k")
        assert any_lab.open(table).load("k").record.fence == 7


@pytest.mark.parametrize("whose", ["ours", "the application's"])
def test_half_a_reply(any_lab: Lab, whose: str) -> None:
    """A reply that breaks off is none: botocore takes half a record for no record at all."""
    table = any_lab.store().options.table
    written = any_lab.open(table).swap("k", None, Record(7))
    assert isinstance(written, Swapped)
    with behind(any_lab) as proxy:
        client = Twice(proxy).client if whose == "the application's" else None
        store = through(any_lab, proxy, table) if client is None else any_lab.open(table, client)
        assert store.load("k").record.fence == 7
        proxy.mode = "halve replies"
        with pytest.raises(Unavailable):
            store.load("k")
        with pytest.raises(Unavailable):
            store.scan("", None, 10)
        with pytest.raises(OutcomeUnknown):
            store.swap("k", None, Record(8))
        proxy.mode = "pass"
        assert store.load("k").record.fence == 7


def test_reply_that_is_no_tls(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write whose reply is damaged is unknown, and not for a lack of trust undone."""
    table = lab.store().options.table
    certificate = new_certificate(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate.public))
    with TLSFront(int(lab.endpoint.rpartition(":")[2]), certificate) as front:
        store = lab.open(table, endpoint_url=f"https://127.0.0.1:{front.port}", timeout_s=5)
        store.load("k")
        front.damaged = True
        with pytest.raises(OutcomeUnknown) as caught:
            store.swap("k", None, Record(7))
        assert isinstance(caught.value.__cause__, SSLError)
        with pytest.raises(Unavailable):
            store.load("k")
        assert lab.open(table).load("k").record.fence == 7


def test_certificate_that_is_not_trusted(lab: Lab, tmp_path: Path) -> None:
    """That does not get better by trying again; and nothing was written."""
    with TLSFront(1, new_certificate(tmp_path)) as front:
        store = lab.open("locks", endpoint_url=f"https://127.0.0.1:{front.port}")
        with pytest.raises(Misconfigured, match="certificate"):
            store.swap("k", None, Record(7))


@pytest.mark.parametrize("mode", ["drop requests", "drop replies"])
def test_no_answer(lab: Lab, mode: Mode) -> None:
    """A request that is never answered ends after the time allowed, as unknown."""
    table = lab.store().options.table
    with behind(lab) as proxy:
        store = through(lab, proxy, table, timeout_s=0.5)
        store.load("k")
        proxy.mode = mode
        with pytest.raises(OutcomeUnknown):
            store.swap("k", None, Record(7))
        assert lab.open(table).load("k").record.fence == (7 if mode == "drop replies" else 0)


def test_stale_connections_are_replaced(lab: Lab) -> None:
    """A read on a connection that broke meanwhile works, without an error."""
    table = lab.store().options.table
    with behind(lab) as proxy:
        store = through(lab, proxy, table)
        for _ in range(3):
            store.load("k")
            proxy.cut()
            time.sleep(0.05)
        store.load("k")


@pytest.mark.parametrize("face", ["sync", "async"])
def test_lease_through_lost_replies(any_lab: Lab, face: str) -> None:
    """Acquire and release end well though replies get lost on the way."""
    table = any_lab.store().options.table
    with behind(any_lab) as proxy, Locks(any_lab.open(table)) as other:
        store = through(any_lab, proxy, table)
        if face == "sync":
            lose_and_find(Locks(store), proxy, other)
        else:
            asyncio.run(alose_and_find(aio.Locks(store), proxy, other))


def lose_and_find(locks: Locks, proxy: Proxy, other: Locks) -> None:
    """One lease whose acquire and release both lose replies."""
    lose_for(proxy, 0.4)
    lease = locks.acquire("k", ttl=20, timeout=30)
    assert other.try_acquire("k") is None
    lose_for(proxy, 0.4)
    assert lease.release() is True
    with other.acquire("k", timeout=0):
        pass
    locks.close()


async def alose_and_find(locks: aio.Locks, proxy: Proxy, other: Locks) -> None:
    """The same, awaited."""
    lose_for(proxy, 0.4)
    lease = await locks.acquire("k", ttl=20, timeout=30)
    assert other.try_acquire("k") is None
    lose_for(proxy, 0.4)
    assert await lease.release() is True
    with other.acquire("k", timeout=0):
        pass
    await locks.close()


def lose_for(proxy: Proxy, seconds: float) -> None:
    """Lose replies for a while."""
    proxy.mode = "drop replies"
    threading.Timer(seconds, setattr, [proxy, "mode", "pass"]).start()


# --- requests that botocore sends twice -----------------------------------------------------


class Twice:
    """An application's client that tries again by itself, behind a proxy that loses the first
    reply to a write. `between` is called before the second attempt."""

    def __init__(self, proxy: Proxy) -> None:
        config = Config(retries={"max_attempts": 3, "mode": "standard"}, read_timeout=5)
        endpoint = f"http://127.0.0.1:{proxy.port}"
        self.client = session().client("dynamodb", endpoint_url=endpoint, config=config)
        self.client.meta.events.register("before-send.dynamodb.PutItem", self._before)
        self.attempts = 0
        self.between: Any = lambda: None
        self._proxy = proxy

    def lose_next(self) -> None:
        """From now on."""
        self.attempts = 0
        self._proxy.mode = "reset replies"

    def _before(self, **_: Any) -> None:
        self.attempts += 1
        if self.attempts == 2:
            self._proxy.mode = "pass"
            self.between()


def test_own_write_is_recognised(clocked_lab: Lab) -> None:
    """A write that was done at the first attempt is no conflict at the second."""
    table = clocked_lab.store().options.table
    with behind(clocked_lab) as proxy:
        twice = Twice(proxy)
        store = clocked_lab.open(table, twice.client)
        store.load("k")
        twice.lose_next()
        first = store.swap("k", None, Record(1))
        assert isinstance(first, Swapped)
        assert twice.attempts == 2
        twice.lose_next()
        second = store.swap("k", first.version, Record(2))
        assert isinstance(second, Swapped)
        assert store.load("k").version == second.version
        twice.client.close()


def test_overwritten_write_is_unknown(any_lab: Lab) -> None:
    """Where somebody else has written since, nobody knows whether the first attempt was done."""
    mine = any_lab.store()
    with behind(any_lab) as proxy:
        twice = Twice(proxy)
        store = any_lab.open(mine.options.table, twice.client)
        store.load("k")

        def overwrite() -> None:
            assert isinstance(mine.swap("k", mine.load("k").version, Record(9)), Swapped)

        twice.between = overwrite
        twice.lose_next()
        with pytest.raises(OutcomeUnknown, match="sent twice"):
            store.swap("k", None, Record(1))
        twice.client.close()


def test_release_that_was_sent_twice(any_lab: Lab) -> None:
    """A release whose first attempt was done says so, though another has the lock by now."""
    mine = any_lab.store()
    with behind(any_lab) as proxy, Locks(mine) as other:
        twice = Twice(proxy)
        with Locks(any_lab.open(mine.options.table, twice.client), ttl=60) as locks:
            lease = locks.acquire("k")
            heirs: list[Any] = []
            twice.between = lambda: heirs.append(other.acquire("k", ttl=60, timeout=0))
            twice.lose_next()
            assert lease.release() is True
            assert heirs[0].held
            assert heirs[0].release() is True
        twice.client.close()


# --- a server that comes back ---------------------------------------------------------------


def test_restart_while_holding(own_lab: Lab, victim: DynamoDBLocal) -> None:
    """A restart shorter than the ttl costs no lease."""
    table = own_lab.store().options.table
    with Locks(own_lab.open(table), ttl=60) as locks:
        lease = locks.acquire("k")
        victim.kill()
        with pytest.raises((Unavailable, OutcomeUnknown)):
            lease.renew()
        victim.start()
        until(lambda: renewed(lease))
        assert lease.held
        assert lease.release() is True
        assert locks.show("k").free


def renewed(lease: Lease) -> bool:
    """Whether it could be renewed now: a server that has just started is slow."""
    try:
        lease.renew()
    except (Unavailable, OutcomeUnknown):
        return False
    return True


def test_release_meets_an_outage(any_lab: Lab) -> None:
    """A release goes on until the server can be reached again."""
    table = any_lab.store().options.table
    with behind(any_lab) as proxy, Locks(through(any_lab, proxy, table), ttl=60) as locks:
        lease = locks.acquire("k")
        proxy.mode = "refuse"
        proxy.cut()
        threading.Timer(0.5, setattr, [proxy, "mode", "pass"]).start()
        assert lease.release() is True
        assert locks.show("k").free


@pytest.mark.parametrize("face", ["sync", "async"])
def test_restart_while_waiting(own_lab: Lab, victim: DynamoDBLocal, face: str) -> None:
    """A waiter sits out a restart, and gets in by the release after it."""
    table = own_lab.store().options.table
    with Locks(own_lab.open(table), ttl=60) as a, ThreadPoolExecutor(1) as pool:
        lease = a.acquire("k")
        wait = _wait if face == "sync" else _await
        waiting = pool.submit(wait, own_lab.url(table))
        time.sleep(0.5)
        victim.restart()
        time.sleep(0.3)
        assert not waiting.done()
        lease.release()
        assert waiting.result(60) > lease.fence


def _wait(url: str) -> int:
    with holdfast.connect(url) as locks, locks.acquire("k", timeout=60) as lease:
        return lease.fence


def _await(url: str) -> int:
    async def run() -> int:
        async with aio.connect(url) as locks, locks.acquire("k", timeout=60) as lease:
            return lease.fence

    return asyncio.run(run())


def test_freeze_longer_than_the_ttl(own_lab: Lab, victim: DynamoDBLocal) -> None:
    """A frozen server: the loss is told in time, and the lease stays lost when it thaws."""
    table = own_lab.store().options.table
    with Locks(own_lab.open(table, timeout_s=0.5), ttl=1.5) as locks:
        lease = locks.acquire("k")
        victim.pause()
        try:
            assert lease.lost.wait(20)
            with pytest.raises((Unavailable, OutcomeUnknown)):
                locks.acquire("k", timeout=0.5)
        finally:
            victim.resume()
        with pytest.raises(LeaseLost):
            lease.check()
        with locks.acquire("k", timeout=60) as heir:
            assert heir.fence > lease.fence
