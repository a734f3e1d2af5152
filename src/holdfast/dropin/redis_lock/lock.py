# Made from lock_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""The lock: the calls of redis-py's `Lock`, carried out by `protocol` over `transport`.

A task that is cancelled, or a thread that is interrupted, in the middle of `acquire` does not keep
the lock: it is released by its token. On an event loop a task of its own does that, and the
cancellation goes on its way.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Literal, TypeVar

from redis.exceptions import LockError, LockNotOwnedError, RedisError
from redis.lock import Lock as _RedisLock
from redis.lock import logger  # whoever listens to it goes on hearing

from holdfast.dropin.redis_lock.protocol import (
    EXPIRE,
    AcquireRequest,
    Call,
    Calls,
    Listen,
    Pause,
    Reply,
    acquire_calls,
    expire_calls,
    extend_calls,
    release_calls,
)
from holdfast.dropin.redis_lock.pubsub import Listener
from holdfast.dropin.redis_lock.state import LOST_IN_BLOCK, LockState
from holdfast.dropin.redis_lock.transport import UNSURE, call
from holdfast.runtime.run import run

__all__ = ["Lock"]

R = TypeVar("R")


class Lock(LockState, _RedisLock):
    """A lock like redis-py's: `client.lock("name", timeout=30, lock_class=Lock)`.

    Subclasses redis-py's lock only so that isinstance() holds; no behaviour is inherited.

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
        return self._acquire(self._wanting(sleep, blocking, blocking_timeout, token))

    def _acquire(self, wanting: AcquireRequest) -> bool:
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
            renew = partial(_renew, self.redis, self.name)
            self._keep(wanting, since, renew)
        return True

    def release(self, token: str | bytes | None = None) -> None:
        """Free the lock; with a token, also that of another thread, task or process."""
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

    # --- running the protocol ---------------------------------------------------------------

    def _run(self, calls: Calls[R]) -> R:
        listener = Listener(self.redis, self._channel())
        is_listening = False

        def ask(asked: Call) -> Reply:
            return call(self.redis, asked.script, self.name, asked.args)

        def listen(asked: Listen) -> None:
            nonlocal is_listening
            is_listening = True
            listener.open()

        def pause(asked: Pause) -> None:
            if is_listening:
                listener.wait(asked.seconds)
                return
            time.sleep(asked.seconds)

        try:
            return run(calls, {}, {Call: ask, Listen: listen, Pause: pause})
        finally:
            if is_listening:
                listener.close()

    def _take_back(self, wanting: AcquireRequest) -> None:
        """We were cancelled or interrupted, and may have got it all the same."""
        if not wanting.drawn:
            return
        self._free_if_ours(wanting.token)

    def _free_if_ours(self, token: bytes) -> None:
        with suppress(RedisError):
            self._run(release_calls(token, self._channel()))


def _renew(client: Any, name: Any, token: bytes, ttl_ms: int) -> bool:
    return bool(call(client, EXPIRE, name, (token, ttl_ms, "renew")).value)
