"""What is asked of Redis, and what the answers mean. No I/O here: both faces run it.

A call yields effects and gets their answers, as in `holdfast.core`. Redis's reply to a
script comes with a doubt: True if an earlier try of the same call got no reply, so that it
may have been carried out before.

 1. A token that we drew is known to nobody else. Whoever finds it in the key holds the
    lock, however often the request was sent.
 2. A token that the caller chose may be known to others (some teams give all workers the
    same one). Finding it proves nothing, and `acquire` goes by the plain answer.
 3. A release in doubt that finds the token gone has done its work.
 4. Time is never added. `extend` asks for the present end, adds to that here, and moves
    the end from the one to the other, which can be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias, TypeVar

R = TypeVar("R")


class Script(NamedTuple):
    """A Lua script, and the name under which Redis remembers it."""

    text: str
    digest: str


def _load(name: str) -> Script:
    text = files(__package__).joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


ACQUIRE = _load("acquire")
RELEASE = _load("release")
EXPIRE = _load("expire")
LOOK = _load("look")
MOVE = _load("move")


class Reply(NamedTuple):
    """Redis's answer, and whether an earlier try of the same call got none."""

    value: Any
    doubted: bool


@dataclass(frozen=True)
class Call:
    """Run a script on the lock's key."""

    script: Script
    args: tuple[Any, ...]

    def __iter__(self) -> Generator[Effect, Any, Reply]:
        reply: Reply = yield self
        return reply


@dataclass(frozen=True)
class Listen:
    """Be told of releases from here on."""

    def __iter__(self) -> Generator[Effect, Any, None]:
        yield self


@dataclass(frozen=True)
class Pause:
    """Sleep, until a release is told if we listen."""

    seconds: float

    def __iter__(self) -> Generator[Effect, Any, None]:
        yield self


Effect: TypeAlias = Call | Listen | Pause
Calls: TypeAlias = Generator[Effect, Any, R]


@dataclass(frozen=True)
class AcquireRequest:
    """One `acquire`, with everything decided."""

    token: bytes
    drawn: bool  # the token is ours alone
    unsettled: bool  # an earlier try with it may have got in
    ttl_ms: int | None
    sleep: float
    blocking: bool
    stop_at: float | None
    push: bool


def acquire_calls(wanting: AcquireRequest) -> Calls[float | None]:
    """The moment from which on the lock is ours, or None."""
    ttl = "" if wanting.ttl_ms is None else wanting.ttl_ms
    attempt = Call(ACQUIRE, (wanting.token, ttl, "1" if wanting.drawn else "0"))
    listening = False
    while True:
        sent = time.monotonic()
        (got, left_ms), _ = yield from attempt
        if got:
            return sent
        if not wanting.blocking:
            return None
        if wanting.push and not listening:
            listening = True
            yield from Listen()
            continue  # it may have been released before we listened
        seconds = _pause(wanting, left_ms)
        if seconds is None:
            return None
        yield from Pause(seconds)


def _pause(wanting: AcquireRequest, left_ms: int) -> float | None:
    """How long until the next look; None if time is up."""
    now, stop_at = time.monotonic(), wanting.stop_at
    if not wanting.push:
        # No look after the end, so none that is worth waiting for. As redis-py puts it, to the last
        # bit: `stop_at - now < sleep` is rounded otherwise, and would cost the last look.
        return None if stop_at is not None and now + wanting.sleep > stop_at else wanting.sleep
    remaining = None if stop_at is None else stop_at - now
    if remaining is not None and remaining <= 0:
        return None
    moments = [wanting.sleep, (left_ms + 1) / 1000 if left_ms >= 0 else wanting.sleep]
    return min(moments if remaining is None else [*moments, remaining])


def release_calls(token: bytes, channel: bytes | str) -> Calls[bool]:
    """Whether the lock was ours, and is free now."""
    freed, doubted = yield from Call(RELEASE, (token, channel))
    return bool(freed) or doubted


def expire_calls(token: bytes, ttl_ms: int, rule: str) -> Calls[bool]:
    """Whether the lock is ours, and has the time that was asked for."""
    reply = yield from Call(EXPIRE, (token, ttl_ms, rule))
    return bool(reply.value)


def extend_calls(token: bytes, additional_ms: int) -> Calls[bool]:
    """Whether the lock is ours, and has so much more time than before."""
    while True:
        end, _ = yield from Call(LOOK, (token,))
        if end <= 0:
            return False
        moved, _ = yield from Call(MOVE, (token, end, end + additional_ms))
        if moved >= 0:
            return bool(moved)
