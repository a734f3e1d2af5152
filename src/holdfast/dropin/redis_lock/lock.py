"""The blocking face of the drop-in."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Literal, TypeVar

import redis.lock
from redis.exceptions import LockError, LockNotOwnedError, RedisError

from holdfast.dropin.redis_lock import wire
from holdfast.dropin.redis_lock.calls import (
    EXPIRE,
    Call,
    Calls,
    Listen,
    Wanting,
    acquire_calls,
    expire_calls,
    extend_calls,
    release_calls,
)
from holdfast.dropin.redis_lock.push import Listener
from holdfast.dropin.redis_lock.state import LOST_IN_BLOCK, LockState
from holdfast.dropin.redis_lock.wire import UNSURE

R = TypeVar("R")

logger = redis.lock.logger  # whoever listens to it goes on hearing


class Lock(LockState, redis.lock.Lock):
    """A lock like `redis.lock.Lock`: `client.lock("name", timeout=30, lock_class=Lock)`.

    Subclasses `redis.lock.Lock` only so that isinstance() holds; no behaviour is inherited.

    With options of its own: `lock_class=functools.partial(Lock, keep=True, push=True)`.
    """

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Get the lock; False if it is taken for longer than we may wait."""
        wanting = self._wanting(sleep, blocking, blocking_timeout, token)
        try:
            since = self._run(acquire_calls(wanting))
        except UNSURE:
            self._went_silent(wanting)
            raise
        except RedisError:
            self._missed(wanting)
            raise
        except BaseException:
            self._take_back(wanting)
            raise
        if since is None:
            self._missed(wanting)
            return False
        self._got(wanting)
        if self.keep:
            # The keeper must not know the lock itself, or it would never be forgotten.
            self._keep(wanting, since, partial(_renew, self.redis, self.name))
        return True

    def release(self, token: str | bytes | None = None) -> None:
        """Free the lock; with a token, also that of another thread or process."""
        expected = self._give_up_token(token)
        try:
            self.do_release(expected)
        except LockNotOwnedError:
            raise
        except BaseException:  # interrupted, or Redis was silent: it may be there still
            self._may_release_again(expected, token)
            raise

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Give it more time than it has; or so much from now on, with `replace_ttl`."""
        self._token_for("extend")
        return self.do_extend(additional_time, replace_ttl)

    def reacquire(self) -> Literal[True]:
        """Give it its full timeout again."""
        self._token_for("reacquire")
        return self.do_reacquire()

    def locked(self) -> bool:
        """Whether anybody holds it."""
        return self.redis.get(self.name) is not None

    def owned(self) -> bool:
        """Whether this lock (in this thread, if its token is thread-local) holds it."""
        return self._is_mine(self.redis.get(self.name))

    def __enter__(self) -> Lock:
        if not self.acquire():
            raise self._not_locked("Unable to acquire lock within the time specified")
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except LockError:
            if self.raise_on_release_error:
                raise
            logger.warning(LOST_IN_BLOCK)

    # --- what subclasses of redis-py's lock know --------------------------------------------

    def do_acquire(self, token: str | bytes) -> bool:
        """One try with this token."""
        since = self._run(acquire_calls(self._wanting(None, False, None, token)))
        return since is not None

    def do_release(self, expected_token: str | bytes) -> None:
        """Free the lock that this token holds."""
        token = self._encode(expected_token)
        self._end_renewal(token)
        freed = self._run(release_calls(token, self._channel()))
        self._check_owned(freed, "release")

    def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """As `extend`, without a look at our own state."""
        millis, token = int(additional_time * 1000), self.local.token
        replace = expire_calls(token, millis, "extend")
        owned = self._run(replace if replace_ttl else extend_calls(token, millis))
        self._check_owned(owned, "extend")
        return True

    def do_reacquire(self) -> Literal[True]:
        """As `reacquire`, without a look at our own state."""
        assert self.timeout is not None
        millis = int(self.timeout * 1000)
        owned = self._run(expire_calls(self.local.token, millis, "reacquire"))
        self._check_owned(owned, "reacquire")
        return True

    # --- the driver -------------------------------------------------------------------------

    def _run(self, calls: Calls[R]) -> R:
        listener: Listener | None = None
        answer: Any = None
        try:
            while True:
                try:
                    effect = calls.send(answer)
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]
                answer = None
                if isinstance(effect, Call):
                    answer = wire.call(self.redis, effect.script, self.name, effect.args)
                elif isinstance(effect, Listen):
                    listener = Listener(self.redis, self._channel())
                elif listener is None:
                    time.sleep(effect.seconds)
                else:
                    listener.wait(effect.seconds)
        finally:
            calls.close()
            if listener is not None:
                listener.close()

    def _take_back(self, wanting: Wanting) -> None:
        """We were interrupted (Ctrl-C, a time limit), and may have got it all the same."""
        if wanting.drawn:
            with suppress(RedisError):
                self._run(release_calls(wanting.token, self._channel()))


def _renew(client: Any, name: Any, token: bytes, ttl_ms: int) -> bool:
    return bool(wire.call(client, EXPIRE, name, (token, ttl_ms, "renew")).value)
