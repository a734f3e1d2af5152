"""What ours can do beyond redis-py's: renewal, push, release by token."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
import redis
from redis.exceptions import LockError, LockNotOwnedError, ResponseError

from holdfast.dropin.redis_lock import Lock
from tests.dropin.redis_lock.lab import Lab
from tests.engines.redis import RedisServer

WITHIN = 20.0


def _until(true: Callable[[], object], lab: Lab) -> None:
    ends_at = time.monotonic() + WITHIN
    while not true():
        assert time.monotonic() < ends_at
        _wait(lab, 0.02)


def _wait(lab: Lab, seconds: float) -> None:
    """Sleep, and let the lab's event loop run meanwhile if it has one."""
    if lab.face == "sync":
        time.sleep(seconds)
    else:
        lab.do(asyncio.sleep(seconds))


# --- keep -----------------------------------------------------------------------------------


def test_a_kept_lock_outlives_its_timeout(ours: Lab) -> None:
    """It is renewed while it is held, and not after."""
    lock = ours.lock(timeout=1.5, keep=True)
    assert ours.do(lock.acquire())
    _wait(ours, 3.2)
    assert ours.do(lock.owned()) is True
    assert lock.lost is False
    token = lock.local.token
    ours.do(lock.release())
    assert ours.raw.get("foo") is None
    ours.raw.set("foo", token, px=900)
    _until(lambda: ours.raw.get("foo") is None, ours)


def test_a_kept_lock_without_a_timeout(ours: Lab) -> None:
    """There is nothing to renew."""
    with pytest.raises(LockError, match="renews a timeout"):
        ours.lock(keep=True)


def test_a_kept_lock_that_is_lost(ours: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """It says so, and is not taken back from the next one."""
    lock = ours.lock(timeout=0.6, keep=True)
    ours.do(lock.acquire())
    ours.raw.set("foo", "somebody else")
    with caplog.at_level(logging.ERROR, "holdfast"):
        _until(lambda: lock.lost, ours)
        _until(lambda: "was lost" in caplog.text, ours)
    assert ours.raw.get("foo") == b"somebody else"
    with pytest.raises(LockNotOwnedError):
        ours.do(lock.release())
    ours.raw.delete("foo")
    assert ours.do(lock.acquire())
    assert lock.lost is False
    ours.do(lock.release())


def test_a_kept_lock_whose_loop_is_blocked(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what stands in the way."""
    lab = Lab(server.port, "ours", "async")
    lab.raw.flushdb()
    lock = lab.lock(timeout=0.5, keep=True)
    lab.do(lock.acquire())
    with caplog.at_level(logging.WARNING, "holdfast"):
        ends_at = time.monotonic() + WITHIN
        while "was not renewed" not in caplog.text and time.monotonic() < ends_at:
            time.sleep(0.05)  # the loop does not run
    assert "perhaps the event loop is blocked" in caplog.text
    lab.close()


def test_renewal_does_not_shorten(ours: Lab) -> None:
    """What `extend` has added stays."""
    lock = ours.lock(timeout=1.5, keep=True)
    ours.do(lock.acquire())
    ours.do(lock.extend(60))
    _wait(ours, 1.2)
    assert ours.raw.pttl("foo") > 50_000
    ours.do(lock.release())


def test_a_forgotten_lock_is_not_renewed(ours: Lab) -> None:
    """If nobody can release it any more, its timeout frees it."""
    lock = ours.lock(timeout=0.5, keep=True)
    ours.do(lock.acquire())
    del lock
    gc.collect()
    _until(lambda: ours.raw.get("foo") is None, ours)


# Newer Pythons warn of what a fork does to threads, and that is what is tested.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_renews_nothing(server: RedisServer) -> None:
    """The child of a holder neither renews nor loses its parent's lock."""
    client = redis.Redis(port=server.port)
    client.flushdb()
    lock = Lock(client, "foo", timeout=0.5, keep=True)
    lock.acquire()
    child = os.fork()
    if child == 0:
        time.sleep(1.5)
        os._exit(0)
    lock.release()
    client.set("foo", "other", px=60_000)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.get("foo") == b"other"
    client.close()


# --- push -----------------------------------------------------------------------------------


def test_a_release_wakes_the_waiter(ours: Lab) -> None:
    """With push the next look comes with the release, and not after `sleep`."""
    holder = Lock(ours.raw, "foo", push=True, thread_local=False)
    holder.acquire()
    threading.Timer(0.4, holder.release).start()
    started = time.monotonic()
    assert ours.do(ours.lock(push=True, sleep=15).acquire()) is True
    assert time.monotonic() - started < 10


def test_an_expiry_ends_the_wait(ours: Lab) -> None:
    """Nobody tells of an expiry, but it is known when it comes."""
    ours.raw.set("foo", "x", px=400)
    started = time.monotonic()
    assert ours.do(ours.lock(push=True, sleep=15).acquire()) is True
    assert time.monotonic() - started < 10


def test_old_workers_tell_nothing(ours: Lab) -> None:
    """For their sake there is a look every `sleep` seconds."""
    old = ours.raw.lock("foo", thread_local=False)
    old.acquire()
    threading.Timer(0.2, old.release).start()
    assert ours.do(ours.lock(push=True, sleep=0.1).acquire(blocking_timeout=15)) is True


def test_push_and_a_blocking_timeout(ours: Lab) -> None:
    """The wait ends in time, also when `sleep` is longer."""
    ours.raw.set("foo", "x")
    started = time.monotonic()
    assert ours.do(ours.lock(push=True, sleep=15).acquire(blocking_timeout=0.3)) is False
    assert 0.25 <= time.monotonic() - started < 10


def test_no_connection_is_left_behind(ours: Lab) -> None:
    """A waiter's subscription ends with its wait."""
    ours.raw.set("foo", "x", px=200)
    assert ours.do(ours.lock(push=True, sleep=5).acquire())
    _until(lambda: ours.raw.pubsub_channels() == [], ours)


# --- release by token -----------------------------------------------------------------------


def test_release_from_another_thread(ours: Lab) -> None:
    """The token is all that it takes."""
    lock = ours.lock(timeout=5)
    ours.do(lock.acquire())
    token = lock.local.token
    failures: list[BaseException] = []

    def run() -> None:
        try:
            Lock(ours.raw, "foo").release(token=token)
        except BaseException as exc:
            failures.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert failures == []
    assert ours.raw.get("foo") is None


def test_release_from_another_process(ours: Lab, server: RedisServer) -> None:
    """As text on a command line, for one."""
    lock = ours.lock(timeout=30)
    ours.do(lock.acquire())
    program = (
        "import redis, sys; from holdfast.dropin.redis_lock import Lock\n"
        "Lock(redis.Redis(port=int(sys.argv[1])), 'foo').release(token=sys.argv[2])"
    )
    token = lock.local.token.decode()
    subprocess.run([sys.executable, "-c", program, str(server.port), token], check=True)
    assert ours.raw.get("foo") is None


def test_release_with_a_wrong_token(ours: Lab) -> None:
    """Only the token frees, and our own is kept."""
    lock = ours.lock(timeout=5)
    ours.do(lock.acquire())
    with pytest.raises(LockNotOwnedError):
        ours.do(lock.release(token="guess"))
    assert ours.do(lock.owned()) is True
    ours.do(lock.release(token=lock.local.token))
    assert lock.local.token is None


def test_another_thread_finds_no_token(ours: Lab) -> None:
    """In a thread that never acquired, redis-py's lock raises AttributeError; ours a LockError."""
    lock = ours.lock()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            lock._give_up_token(None)
        except LockError as exc:
            failures.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(failures) == 1


# --- errors ---------------------------------------------------------------------------------


def test_a_key_that_is_no_lock(ours: Lab) -> None:
    """Where redis-py would wait for ever for a list to end, there is an error."""
    ours.raw.lpush("foo", "x")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        ours.do(ours.lock().acquire(blocking_timeout=5))


def test_no_token_in_its_repr(ours: Lab) -> None:
    """A token is like a password."""
    lock = ours.lock()
    ours.do(lock.acquire())
    assert lock.local.token.decode() not in repr(lock)
    assert "foo" in repr(lock)
