"""Replies that are lost on the way, with and without redis-py's own retries."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import AbstractBackoff, NoBackoff
from redis.exceptions import ConnectionError, LockNotOwnedError, TimeoutError
from redis.retry import Retry

from holdfast.dropin.redis_lock import Lock, protocol
from tests.dropin.lossy import LossyProxy, Mode
from tests.dropin.redis_lock.lab import Face, Lab, Whose
from tests.engines.base import free_port
from tests.engines.redis import RedisServer

LOST: list[Mode] = ["drop request", "drop reply", "cut reply", "reset"]
CARRIED_OUT: list[Mode] = ["drop reply", "cut reply"]
SCRIPTS = [protocol.ACQUIRE, protocol.RELEASE, protocol.EXPIRE, protocol.LOOK, protocol.MOVE]
SILENCE = 0.3


def _lab(server: RedisServer, proxy: LossyProxy, whose: Whose, face: Face, retries: int) -> Lab:
    retry = (Retry if face == "sync" else AsyncRetry)(NoBackoff(), retries)
    lab = Lab(server.port, whose, face, socket_timeout=SILENCE, retry=retry)
    lab.raw.flushdb()
    for script in SCRIPTS:  # or the lost reply might only be that it is not known
        lab.raw.script_load(script.text)
    lab.client = lab.new_client(proxy.port)
    return lab


@pytest.fixture(params=[0, 3], ids=["no retries", "3 retries"])
def retries(request: pytest.FixtureRequest) -> int:
    """How often the client tries again by itself."""
    return int(request.param)


@pytest.fixture
def far(server: RedisServer, proxy: LossyProxy, face: Face, retries: int) -> Iterator[Lab]:
    """Our locks behind a bad network."""
    lab = _lab(server, proxy, "ours", face, retries)
    yield lab
    lab.close()


def test_theirs_misses_a_lock_that_it_got(
    server: RedisServer, proxy: LossyProxy, face: Face
) -> None:
    """Why this matters: redis-py's retry finds its own token and calls it somebody else's."""
    lab = _lab(server, proxy, "theirs", face, 3)
    lab.do(lab.client.ping())
    proxy.plan("cut reply", having=b"SET")
    assert lab.do(lab.lock(timeout=10).acquire(blocking=False)) is False
    assert lab.raw.exists("foo")
    lab.close()


@pytest.mark.parametrize("mode", LOST)
def test_acquire(far: Lab, proxy: LossyProxy, mode: Mode) -> None:
    """A lock that was got is known to be got; and it has its full time."""
    lock = far.lock(timeout=10)
    proxy.plan(mode, having=b"EVAL")
    assert far.do(lock.acquire(blocking=False)) is True
    assert proxy.lost == 1
    assert far.raw.get("foo") == lock.local.token
    assert far.raw.pttl("foo") > 8_000
    assert far.do(far.lock(timeout=10).acquire(blocking=False)) is False


@pytest.mark.parametrize("mode", CARRIED_OUT)
def test_acquire_of_what_is_taken(far: Lab, proxy: LossyProxy, mode: Mode) -> None:
    """A lost reply does not make somebody else's lock ours."""
    far.raw.set("foo", "somebody else")
    proxy.plan(mode, having=b"EVAL")
    assert far.do(far.lock(timeout=10).acquire(blocking=False)) is False
    assert far.raw.get("foo") == b"somebody else"


@pytest.mark.parametrize("mode", LOST)
def test_release(far: Lab, proxy: LossyProxy, mode: Mode) -> None:
    """A release that was carried out is not "no longer owned"."""
    lock = far.lock(timeout=10)
    far.do(lock.acquire())
    proxy.plan(mode, having=b"EVAL")
    far.do(lock.release())
    assert proxy.lost == 1
    assert far.raw.get("foo") is None


def test_release_that_finds_the_next_holder(far: Lab, proxy: LossyProxy) -> None:
    """The reply is lost, somebody else gets in, and the second try leaves them alone."""
    lock = far.lock(timeout=10)
    far.do(lock.acquire())
    proxy.plan("drop reply", having=b"EVAL")
    patience = threading.Thread(target=_get_in, args=(far.raw,))
    patience.start()
    far.do(lock.release())
    patience.join()
    assert far.raw.get("foo") == b"next"


def _get_in(client: Any) -> None:
    while not client.set("foo", "next", nx=True):
        pass


@pytest.mark.parametrize("mode", CARRIED_OUT)
@pytest.mark.parametrize("trip", [protocol.LOOK, protocol.MOVE], ids=["look", "move"])
def test_extend_adds_once(far: Lab, proxy: LossyProxy, mode: Mode, trip: protocol.Script) -> None:
    """Whichever of its two trips is sent twice, the time is added once."""
    lock = far.lock(timeout=10)
    far.do(lock.acquire())
    proxy.plan(mode, having=trip.digest.encode())
    assert far.do(lock.extend(30)) is True
    assert proxy.lost == 1
    assert 33_000 < far.raw.pttl("foo") <= 40_000


def test_theirs_adds_twice(server: RedisServer, proxy: LossyProxy, face: Face) -> None:
    """Why this matters, again."""
    lab = _lab(server, proxy, "theirs", face, 3)
    lock = lab.lock(timeout=10)
    lab.do(lock.acquire())
    lab.do(lock.extend(0.001))
    proxy.plan("cut reply", having=b"EVAL")
    lab.do(lock.extend(30))
    assert lab.raw.pttl("foo") > 60_000
    lab.close()


@pytest.mark.parametrize("mode", CARRIED_OUT)
def test_reacquire(far: Lab, proxy: LossyProxy, mode: Mode) -> None:
    """It sets, and may be repeated."""
    lock = far.lock(timeout=10)
    far.do(lock.acquire())
    far.raw.pexpire("foo", 5000)
    proxy.plan(mode, having=b"EVAL")
    assert far.do(lock.reacquire()) is True
    assert far.raw.pttl("foo") > 8_000


def test_a_token_that_others_may_have(far: Lab, proxy: LossyProxy) -> None:
    """Finding a shared token proves nothing: better to wait for the ttl than to be two."""
    proxy.plan("cut reply", having=b"EVAL")
    assert far.do(far.lock(timeout=10).acquire(blocking=False, token="static")) is False


def test_a_lost_lock_is_still_an_error(far: Lab, proxy: LossyProxy) -> None:
    """Without a lost reply there is no excuse for a token that is gone."""
    lock = far.lock(timeout=10)
    far.do(lock.acquire())
    far.raw.delete("foo")
    with pytest.raises(LockNotOwnedError):
        far.do(lock.release())


@pytest.mark.parametrize("mode", CARRIED_OUT)
def test_silence_and_another_try(far: Lab, proxy: LossyProxy, mode: Mode) -> None:
    """When Redis stays silent that is an error; the next acquire finds out what became of it."""
    lock = far.lock(timeout=60)
    proxy.plan(mode, count=99, having=b"EVAL")
    with pytest.raises((ConnectionError, TimeoutError)):
        far.do(lock.acquire(blocking=False))
    proxy.heal()
    assert far.do(lock.acquire(blocking=False)) is True
    assert far.do(lock.owned()) is True


@pytest.mark.parametrize("mode", CARRIED_OUT)
def test_silence_and_two_who_share_a_lock(far: Lab, proxy: LossyProxy, mode: Mode) -> None:
    """Threads or tasks that share one lock do not both take what the silent try may have got."""
    lock = far.lock(timeout=60, thread_local=False, sleep=0.02)
    proxy.plan(mode, count=99, having=b"EVAL")
    with pytest.raises((ConnectionError, TimeoutError)):
        far.do(lock.acquire(blocking=False))
    proxy.heal()
    far.raw.set("foo", "somebody else", px=1000)  # both wait, and see it go at the same time
    assert sorted(_two_at_once(far, lambda: lock.acquire(blocking_timeout=3))) == [False, True]


def _two_at_once(lab: Lab, call: Callable[[], Any]) -> list[Any]:
    if lab.face == "sync":
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda _: call(), range(2)))

    async def both() -> list[Any]:
        return list(await asyncio.gather(call(), call()))

    return list(lab.do(both()))


def test_silence_at_the_release(far: Lab, proxy: LossyProxy) -> None:
    """A release that could not be sent can be tried again."""
    lock = far.lock(timeout=60)
    far.do(lock.acquire())
    proxy.plan("reset", count=99, having=b"EVAL")
    with pytest.raises(ConnectionError):
        far.do(lock.release())
    proxy.heal()
    far.do(lock.release())
    assert far.raw.get("foo") is None


class _CountingBackoff(AbstractBackoff):
    """No pause, but counted; on the class, because connections copy it."""

    count = 0

    def compute(self, failures: int) -> float:
        type(self).count += 1
        return 0.0


def test_nobody_there(face: Face) -> None:
    """A server that is down is tried as often as the client says, and not that often again."""
    _CountingBackoff.count = 0
    retry = (Retry if face == "sync" else AsyncRetry)(_CountingBackoff(), 3)
    lab = Lab(free_port(), "ours", face, retry=retry)
    with pytest.raises(ConnectionError):
        lab.do(lab.lock(timeout=5).acquire())
    assert _CountingBackoff.count <= 3
    lab.close()


def test_a_forgotten_script(ours: Lab) -> None:
    """SCRIPT FLUSH and restarts make Redis forget; it is told again."""
    lock = ours.lock(timeout=10)
    for call in (lock.acquire, lambda: lock.extend(1), lock.reacquire, lock.release):
        ours.raw.script_flush()
        ours.do(call())
    assert ours.raw.get("foo") is None


class Interrupted(BaseException):
    """Like Ctrl-C."""


def test_an_interrupt_in_the_middle(server: RedisServer, proxy: LossyProxy) -> None:
    """A blocking acquire that is interrupted does not keep the lock."""

    def interrupt(*_: object) -> None:
        proxy.heal()
        raise Interrupted

    client = redis.Redis(port=proxy.port)
    lab = Lab(server.port, "ours", "sync")
    lab.raw.flushdb()
    proxy.plan("drop reply", having=b"EVAL")
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(Interrupted):
            client.lock("foo", lock_class=Lock).acquire()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert proxy.lost == 1
    assert lab.raw.get("foo") is None
    client.close()
    lab.close()


def test_a_cancellation_in_the_middle(server: RedisServer, proxy: LossyProxy) -> None:
    """An asyncio acquire that is cancelled does not keep the lock."""
    lab = Lab(server.port, "ours", "async")
    lab.raw.flushdb()
    lab.client = lab.new_client(proxy.port)

    async def run() -> None:
        in_time = False
        while not in_time:  # unless the client has tried again and was done before
            lock = lab.lock()
            proxy.plan("drop reply", having=b"EVAL")
            task = asyncio.ensure_future(lock.acquire())
            while not lab.raw.exists("foo"):
                await asyncio.sleep(0)
            in_time = task.cancel()
            if not in_time:
                await lock.release()
        with pytest.raises(asyncio.CancelledError):
            await task

    lab.do(run())
    assert lab.raw.get("foo") is None
    lab.close()


@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_a_cancellation_in_the_middle_of_a_release(
    server: RedisServer, proxy: LossyProxy, whose: Whose
) -> None:
    """An asyncio release that is cancelled can be tried again, as with redis-py's."""
    lab = Lab(server.port, whose, "async")
    lab.raw.flushdb()
    lab.client = lab.new_client(proxy.port, socket_timeout=None)

    async def run() -> None:
        lock = lab.lock()
        await lock.acquire()
        proxy.plan("drop request", having=b"EVAL")
        task = asyncio.ensure_future(lock.release())
        while not proxy.lost:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await lock.release()

    lab.do(run())
    assert lab.raw.get("foo") is None
    lab.close()


def test_a_cancelled_release_leaves_the_next_holder_alone(
    server: RedisServer, proxy: LossyProxy
) -> None:
    """Another task has got the lock with the same object by then, and can release it."""
    lab = Lab(server.port, "ours", "async")
    lab.raw.flushdb()
    lab.client = lab.new_client(proxy.port, socket_timeout=None)

    async def run() -> None:
        lock = lab.lock()
        await lock.acquire()
        proxy.plan("drop reply", having=b"EVAL")
        task = asyncio.ensure_future(lock.release())
        while lab.raw.exists("foo"):
            await asyncio.sleep(0)
        proxy.heal()
        assert await lock.acquire(blocking=False)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await lock.release()

    lab.do(run())
    assert lab.raw.get("foo") is None
    lab.close()
