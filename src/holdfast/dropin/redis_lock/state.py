"""What a lock knows without asking Redis: its options, its token, and what it says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from os import urandom
from types import SimpleNamespace
from typing import Any

from redis.exceptions import LockError, LockNotOwnedError

from holdfast.core.holds import Hold
from holdfast.dropin.redis_lock.protocol import AcquireRequest
from holdfast.dropin.renewals import Renewals, renewals

CHANNEL = "holdfast:freed:"
TOKEN_BYTES = 16  # as hex: the size of redis-py's own
LOST_IN_BLOCK = "Lock was unlocked or no longer owned when exiting context manager."


class _Local(threading.local):
    """A token of each thread's own. Other threads than redis-py's find None, not an error."""

    token: bytes | None = None


class _Unsettled(threading.local):
    """Tokens that may have got in: Redis went silent. Beside `local`, which callers know, and
    may replace by one of their own."""

    def __init__(self) -> None:
        self.tokens: list[bytes] = []


class LockState:
    """The part of a lock that is the same for both faces.

    redis, name               the client, and the key
    timeout                   the ttl in seconds; None: until it is released
    sleep                     how long to wait between two looks
    blocking                  whether to wait at all
    blocking_timeout          how long at most
    thread_local              whether each thread has a token of its own
    raise_on_release_error    whether a `with` block fails at its end if the lock was lost
    keep                      renew in the background; needs a timeout
    push                      tell waiters of a release, and be told
    """

    def __init__(
        self,
        redis: Any,
        name: Any,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        keep: bool = False,
        push: bool = False,
    ) -> None:
        if keep and not timeout:
            raise LockError("keep=True renews a timeout: give one", lock_name=name)
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.keep = keep
        self.push = push
        self.local: Any = _Local() if self.thread_local else SimpleNamespace(token=None)
        self._unsettled: Any = _Unsettled() if self.thread_local else SimpleNamespace(tokens=[])
        self._holds: dict[bytes, Hold] = {}  # what is renewed, by its token
        self.register_scripts()  # for subclasses, which may call them or have their own

    def register_scripts(self) -> None:
        """As redis-py's lock has it, the next base class."""
        super().register_scripts()  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.name!r}>"

    @property
    def lost(self) -> bool:
        """Whether a lock that was to be kept (`keep=True`) could not be. Does not ask Redis."""
        hold = self._holds.get(self.local.token)
        return hold is not None and hold.state == "lost"

    # --- what to ask for --------------------------------------------------------------------

    def _wanting(
        self, sleep: float | None, blocking: bool | None, blocking_timeout: float | None,
        token: str | bytes | None,
    ) -> AcquireRequest:  # fmt: skip
        patience = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        unsettled = self._take_unsettled() if token is None else None
        own = self._new_token() if token is None else self._encode(token)
        return AcquireRequest(
            token=own if unsettled is None else unsettled,
            drawn=token is None,
            unsettled=unsettled is not None,
            ttl_ms=self._ttl_ms(),
            sleep=self.sleep if sleep is None else sleep,
            blocking=self.blocking if blocking is None else blocking,
            stop_at=None if patience is None else time.monotonic() + patience,
            push=self.push,
        )

    def _take_unsettled(self) -> bytes | None:
        """A token that may be in Redis without our knowing. It is taken out: threads and tasks
        that share this lock must not find each other's as their own."""
        unsettled: list[bytes] = self._unsettled.tokens
        try:
            return unsettled.pop()
        except IndexError:
            return None

    def _new_token(self) -> bytes:
        return urandom(TOKEN_BYTES).hex().encode()

    def _ttl_ms(self) -> int | None:
        return int(self.timeout * 1000) if self.timeout else None

    def _channel(self) -> bytes:
        return CHANNEL.encode() + self._encode(self.name) if self.push else b""

    def _encode(self, value: Any) -> bytes:
        encoded: bytes = self.redis.get_encoder().encode(value)
        return encoded

    # --- what the answers do ----------------------------------------------------------------

    def _got(self, wanting: AcquireRequest) -> None:
        self._end_renewal(self.local.token)  # of one that was lost and never released
        self.local.token = wanting.token

    def _went_silent(self, wanting: AcquireRequest) -> None:
        """Whether this token got in is not known: the next `acquire` will find out."""
        if wanting.drawn:
            self._unsettled.tokens.append(wanting.token)

    def _missed(self, wanting: AcquireRequest) -> None:
        """Redis said no. An earlier try with this token may still be on its way there."""
        if wanting.unsettled:
            self._unsettled.tokens.append(wanting.token)

    def _keep(
        self, wanting: AcquireRequest, since: float, renew: Callable[[bytes, int], bool]
    ) -> None:
        """Renew it in the background."""
        assert wanting.ttl_ms is not None
        beat = partial(renew, wanting.token, wanting.ttl_ms)
        name = self.name
        shown = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
        kept = renewals(Renewals).keep(self, shown, wanting.ttl_ms, since, beat)
        self._holds[wanting.token] = kept

    def _end_renewal(self, token: bytes | None) -> None:
        """Before it is released: a renewal must not outlive it."""
        hold = self._holds.pop(token, None) if token is not None else None
        if hold is not None:
            renewals(Renewals).end(hold)

    def _give_up_token(self, token: str | bytes | None) -> bytes:
        """The token to release with; it is no longer this lock's."""
        mine: bytes | None = self.local.token
        if token is not None:
            given = self._encode(token)
            if given == mine:
                self.local.token = None
            return given
        if mine is None:
            raise self._not_locked("Cannot release a lock that's not owned or is already unlocked.")
        self.local.token = None
        return mine

    def _may_release_again(self, expected: bytes, given: str | bytes | None) -> None:
        """Whether it was released is not known: the token is kept for another try; unless another
        thread or task has got the lock with this object, so that it was."""
        if given is None and self.local.token is None:
            self.local.token = expected

    def _token_for(self, what: str) -> bytes:
        token: bytes | None = self.local.token
        if token is None:
            raise self._not_locked(f"Cannot {what} an unlocked lock")
        if self.timeout is None:
            raise self._not_locked(f"Cannot {what} a lock with no timeout")
        return token

    def _is_mine(self, stored: Any) -> bool:
        token = self.local.token
        return token is not None and stored is not None and self._encode(stored) == token

    def _check_owned(self, owned: bool, what: str) -> None:
        if not owned:
            raise LockNotOwnedError(
                f"Cannot {what} a lock that's no longer owned", lock_name=self.name
            )

    def _not_locked(self, message: str) -> LockError:
        return LockError(message, lock_name=self.name)
