"""The same behaviours of redis-py's lock and ours, in both faces."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import LockError, LockNotOwnedError, ResponseError

from tests.dropin.redis_lock.lab import CLASSES, Face, Lab


def test_the_bytes_in_redis(lab: Lab) -> None:
    """The key holds the token, and PTTL is the timeout."""
    lock = lab.lock(timeout=10)
    assert lab.do(lock.acquire()) is True
    assert lab.raw.get("foo") == lock.local.token
    assert len(lock.local.token) == 32
    assert 8_000 < lab.raw.pttl("foo") <= 10_000
    assert lab.raw.keys() == [b"foo"]
    assert lab.do(lock.release()) is None
    assert lab.raw.keys() == []
    assert lock.local.token is None


def test_no_timeout(lab: Lab) -> None:
    """Without a timeout the key has no end."""
    lock = lab.lock()
    assert lab.do(lock.acquire())
    assert lab.raw.ttl("foo") == -1
    lab.do(lock.release())


def test_a_timeout_of_less_than_a_second(lab: Lab) -> None:
    """Timeouts may be fractions."""
    lock = lab.lock(timeout=0.4)
    assert lab.do(lock.acquire(blocking=False))
    assert 0 < lab.raw.pttl("foo") <= 400


def test_a_timeout_of_no_time_at_all(lab: Lab) -> None:
    """Redis refuses an expiry of 0 ms."""
    with pytest.raises(ResponseError):
        lab.do(lab.lock(timeout=0.0001).acquire())


@pytest.mark.parametrize("token", ["static", b"static"])
def test_a_token_of_the_callers_choice(lab: Lab, token: str | bytes) -> None:
    """Text and bytes are stored alike, and a second acquire with the same token waits."""
    lock, second = lab.lock(), lab.lock()
    assert lab.do(lock.acquire(token=token))
    assert lab.raw.get("foo") == b"static" == lock.local.token
    assert lab.do(second.acquire(token=token, blocking=False)) is False
    lab.do(lock.release())


def test_names_may_be_bytes(lab: Lab) -> None:
    """As with any key."""
    lock = lab.lock(b"foo\xff", timeout=5)
    assert lab.do(lock.acquire())
    assert lab.raw.keys() == [b"foo\xff"]
    lab.do(lock.release())


def test_locked_and_owned(lab: Lab) -> None:
    """Anybody's and mine."""
    lock, other = lab.lock(), lab.lock()
    assert lab.do(lock.locked()) is False
    assert lab.do(lock.owned()) is False
    lab.do(lock.acquire())
    assert [lab.do(each.locked()) for each in (lock, other)] == [True, True]
    assert [lab.do(each.owned()) for each in (lock, other)] == [True, False]
    lab.raw.set("foo", "somebody else")
    assert lab.do(lock.owned()) is False
    lab.raw.delete("foo")
    assert lab.do(lock.owned()) is False


@pytest.mark.parametrize("decoding", [False, True])
def test_a_client_that_decodes(lab: Lab, decoding: bool, server: Any) -> None:
    """owned() compares bytes, whatever the client makes of them."""
    client = lab.new_client(server.port, decode_responses=decoding)
    lock = lab.lock(client=client, timeout=5)
    assert lab.do(lock.acquire())
    assert lab.do(lock.owned()) is True
    assert lab.do(lock.extend(5)) is True
    lab.do(lock.release())
    lab.do(client.close() if lab.face == "sync" else client.aclose())


def test_not_blocking(lab: Lab) -> None:
    """False at once; by argument or by option."""
    lab.do(lab.lock().acquire())
    assert lab.do(lab.lock().acquire(blocking=False)) is False
    assert lab.do(lab.lock(blocking=False).acquire()) is False


def test_a_blocking_timeout(lab: Lab) -> None:
    """False after about so long."""
    lab.do(lab.lock().acquire())
    started = time.monotonic()
    assert lab.do(lab.lock(blocking_timeout=0.3, sleep=0.05).acquire()) is False
    assert time.monotonic() - started >= 0.2


def test_no_wait_that_no_look_follows(lab: Lab) -> None:
    """If the next look would come after the end, it is over at once."""
    lab.do(lab.lock().acquire())
    started = time.monotonic()
    assert lab.do(lab.lock(sleep=20).acquire(blocking_timeout=10)) is False
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("start", [0.0, 0.1, 1.1, 7.7, 100.3, 1000.7, 12345.6])
def test_as_many_looks(lab: Lab, start: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one comes exactly at the end, however the clock's numbers are rounded."""
    lab.do(lab.lock().acquire())
    now, looks = start, 0

    def sleep(seconds: float) -> None:
        nonlocal now, looks
        now += seconds
        looks += 1

    async def pause(seconds: float) -> None:
        sleep(seconds)

    lock = lab.lock(sleep=0.1, blocking_timeout=0.1)
    with monkeypatch.context() as clock:
        clock.setattr(time, "monotonic", lambda: now)
        clock.setattr(time, "sleep", sleep)
        clock.setattr(asyncio, "sleep", pause)
        clock.setattr(lab._runner.get_loop(), "time", lambda: now)
        assert lab.do(lock.acquire()) is False
    assert looks == 1


def test_waiting_for_a_release(lab: Lab) -> None:
    """A waiter gets it once it is freed."""
    lab.raw.set("foo", "x")
    threading.Timer(0.3, lab.raw.delete, ["foo"]).start()
    lock = lab.lock(sleep=0.02)
    assert lab.do(lock.acquire(blocking_timeout=10)) is True


def test_waiting_for_an_expiry(lab: Lab) -> None:
    """A waiter gets it once it runs out."""
    lab.raw.set("foo", "x", px=300)
    assert lab.do(lab.lock(sleep=0.02).acquire(blocking_timeout=10)) is True


def test_a_with_block(lab: Lab) -> None:
    """Held inside, free after."""
    lock = lab.lock(timeout=5)
    inside: list[Any] = []
    assert lab.hold(lock, lambda: inside.append(lab.raw.get("foo"))) is lock
    assert inside[0] is not None
    assert lab.raw.get("foo") is None


def test_a_with_block_that_cannot_be_entered(lab: Lab) -> None:
    """A LockError, with the lock's name."""
    lab.raw.set("foo", "x")
    with pytest.raises(LockError, match="Unable to acquire lock within") as caught:
        lab.hold(lab.lock(blocking_timeout=0.1, sleep=0.05))
    _check_name(lab, caught.value)


def test_a_with_block_that_lost_its_lock(lab: Lab) -> None:
    """An error at its end."""
    with pytest.raises(LockNotOwnedError):
        lab.hold(lab.lock(), lambda: lab.raw.delete("foo"))


def test_a_with_block_that_lost_its_lock_and_does_not_mind(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """raise_on_release_error=False makes that a warning, where and as redis-py says it."""
    with caplog.at_level(logging.WARNING):
        lab.hold(lab.lock(raise_on_release_error=False), lambda: lab.raw.delete("foo"))
    logger = "redis.lock" if lab.face == "sync" else "redis.asyncio.lock"
    text = "Lock was unlocked or no longer owned when exiting context manager."
    assert caplog.record_tuples == [(logger, logging.WARNING, text)]


def test_the_blocks_own_error(lab: Lab) -> None:
    """It comes out, and the lock is freed."""
    with pytest.raises(ZeroDivisionError):
        lab.hold(lab.lock(), lambda: 1 // 0)
    assert lab.raw.get("foo") is None


def _check_name(lab: Lab, error: LockError) -> None:
    # redis-py's asyncio lock forgets to say it.
    if (lab.whose, lab.face) != ("theirs", "async"):
        assert error.lock_name == "foo"


def test_releasing_what_is_not_locked(lab: Lab) -> None:
    """A LockError that is not about ownership."""
    with pytest.raises(LockError, match="not owned or is already unlocked") as caught:
        lab.do(lab.lock().release())
    assert not isinstance(caught.value, LockNotOwnedError)


def test_releasing_twice(lab: Lab) -> None:
    """The second time it is not locked."""
    lock = lab.lock()
    lab.do(lock.acquire())
    lab.do(lock.release())
    with pytest.raises(LockError):
        lab.do(lock.release())


@pytest.mark.parametrize("how", ["overwritten", "gone"])
def test_releasing_what_is_somebody_elses(lab: Lab, how: str) -> None:
    """LockNotOwnedError, theirs stays, and our token is forgotten."""
    lock = lab.lock()
    lab.do(lock.acquire())
    lab.raw.set("foo", "b") if how == "overwritten" else lab.raw.delete("foo")
    with pytest.raises(LockNotOwnedError, match="no longer owned") as caught:
        lab.do(lock.release())
    _check_name(lab, caught.value)
    assert lock.local.token is None
    assert lab.raw.get("foo") == (b"b" if how == "overwritten" else None)


def test_extend_adds(lab: Lab) -> None:
    """The time comes on top of what is left, also in fractions."""
    lock = lab.lock(timeout=10)
    lab.do(lock.acquire(blocking=False))
    assert lab.do(lock.extend(10)) is True
    assert 16_000 < lab.raw.pttl("foo") <= 20_000
    assert lab.do(lock.extend(0.5)) is True
    assert lab.do(lock.extend(-10)) is True
    assert 6_000 < lab.raw.pttl("foo") <= 10_500


def test_extend_replaces(lab: Lab) -> None:
    """With replace_ttl the time is what is left."""
    lock = lab.lock(timeout=10)
    lab.do(lock.acquire(blocking=False))
    assert lab.do(lock.extend(5, replace_ttl=True)) is True
    assert 2_000 < lab.raw.pttl("foo") <= 5_000


def test_extend_of_what_is_not_locked(lab: Lab) -> None:
    """A LockError."""
    with pytest.raises(LockError, match="Cannot extend an unlocked lock"):
        lab.do(lab.lock(timeout=10).extend(10))


def test_extend_without_a_timeout(lab: Lab) -> None:
    """A LockError."""
    lock = lab.lock()
    lab.do(lock.acquire())
    with pytest.raises(LockError, match="Cannot extend a lock with no timeout"):
        lab.do(lock.extend(10))


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("how", ["overwritten", "gone", "made endless"])
def test_extend_of_what_is_no_longer_ours(lab: Lab, how: str, replace: bool) -> None:
    """LockNotOwnedError; so it is when somebody took the end away."""
    lock = lab.lock(timeout=10)
    lab.do(lock.acquire(blocking=False))
    happens: dict[str, Callable[[], Any]] = {
        "overwritten": lambda: lab.raw.set("foo", "a"),
        "gone": lambda: lab.raw.delete("foo"),
        "made endless": lambda: lab.raw.persist("foo"),
    }
    happens[how]()
    with pytest.raises(LockNotOwnedError, match="Cannot extend a lock that's no longer owned"):
        lab.do(lock.extend(10, replace_ttl=replace))


def test_reacquire(lab: Lab) -> None:
    """The full timeout again, whatever is left."""
    lock = lab.lock(timeout=10)
    lab.do(lock.acquire(blocking=False))
    lab.raw.pexpire("foo", 5000)
    assert lab.do(lock.reacquire()) is True
    assert 8_000 < lab.raw.pttl("foo") <= 10_000
    lab.raw.persist("foo")
    assert lab.do(lock.reacquire()) is True
    assert 8_000 < lab.raw.pttl("foo") <= 10_000


def test_reacquire_errors(lab: Lab) -> None:
    """As with extend."""
    with pytest.raises(LockError, match="Cannot reacquire an unlocked lock"):
        lab.do(lab.lock(timeout=10).reacquire())
    endless = lab.lock("endless")
    lab.do(endless.acquire())
    with pytest.raises(LockError, match="Cannot reacquire a lock with no timeout"):
        lab.do(endless.reacquire())
    lock = lab.lock(timeout=10)
    lab.do(lock.acquire(blocking=False))
    lab.raw.set("foo", "a")
    with pytest.raises(LockNotOwnedError, match="Cannot reacquire a lock that's no longer owned"):
        lab.do(lock.reacquire())


@pytest.mark.parametrize("local", [False, True])
def test_whose_token_it_is(lab: Lab, local: bool) -> None:
    """With thread_local another thread does not see the token, and without it does."""
    lock = lab.lock(thread_local=local)
    lab.do(lock.acquire())
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(getattr(lock.local, "token", None)))
    thread.start()
    thread.join()
    assert seen == [None if local else lock.local.token]


def test_a_second_thread_with_the_same_lock(lab: Lab) -> None:
    """A thread whose lock ran out cannot release the next thread's."""
    lock = lab.lock(timeout=5)
    lab.do(lock.acquire())
    lab.raw.delete("foo")
    other = lab.lock(timeout=5)
    lab.do(other.acquire())
    with pytest.raises(LockNotOwnedError):
        lab.do(lock.release())
    assert lab.do(other.owned())


def test_a_key_of_another_type(lab: Lab) -> None:
    """A list is not a lock."""
    lab.raw.lpush("foo", "x")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        lab.do(lab.lock().locked())


def test_what_subclasses_call(lab: Lab) -> None:
    """do_acquire and do_release take a token and leave the lock's own alone."""
    lock = lab.lock(timeout=5)
    assert lab.do(lock.do_acquire(b"mine")) is True
    assert lab.do(lock.do_acquire(b"yours")) is False
    assert lock.local.token is None
    with pytest.raises(LockNotOwnedError):
        lab.do(lock.do_release(b"yours"))
    lab.do(lock.do_release(b"mine"))
    assert lab.raw.get("foo") is None


def test_scripts_of_a_subclass(lab: Lab) -> None:
    """`register_scripts` is called, and redis-py's own scripts are there to be called."""
    base: Any = CLASSES[lab.whose, lab.face]

    class Own(base):  # type: ignore[misc]
        def register_scripts(self) -> None:
            super().register_scripts()
            self.lua_count = self.redis.register_script("return redis.call('incr', 'count')")

        def do_release(self, expected_token: bytes) -> Any:
            return self.lua_release(keys=[self.name], args=[expected_token], client=self.redis)

    lock = lab.client.lock("foo", timeout=5, lock_class=Own)
    assert lab.do(lock.acquire())
    lab.do(lock.release())
    assert lab.raw.get("foo") is None
    assert lab.do(lock.lua_count()) == 1


def test_a_local_of_the_callers_own(lab: Lab) -> None:
    """Who passes a token on may put it where the lock looks for it."""
    lock, other = lab.lock(timeout=5), lab.lock(timeout=5)
    lab.do(lock.acquire())
    other.local = SimpleNamespace(token=lock.local.token)
    assert lab.do(other.owned()) is True
    lab.do(other.release())
    assert lab.do(other.acquire()) is True


def test_the_same_calls(face: Face) -> None:
    """Every public call has the parameters of the original, in their order."""
    theirs, mine = CLASSES["theirs", face], CLASSES["ours", face]
    # Their scripts hang on the class, bound to the first client that made a lock.
    ignored = {"lua_release", "lua_extend", "lua_reacquire"}
    names = {name for name in vars(theirs) if not name.startswith("_") and name.islower()}
    block = ["__enter__", "__exit__"] if face == "sync" else ["__aenter__", "__aexit__"]
    for name in [*sorted(names - ignored), "__init__", *block]:
        original = list(inspect.signature(getattr(theirs, name)).parameters)
        own = list(inspect.signature(getattr(mine, name)).parameters)
        assert own[: len(original)] == original, name


def test_the_same_type(face: Face) -> None:
    """Code that asks for redis-py's lock gets one."""
    assert issubclass(CLASSES["ours", face], CLASSES["theirs", face])
