"""An address that swallows connections holds nobody up: connecting is part of a request's time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Unavailable, aio

REQUEST_TIMEOUT_S = 1.0
CLOSED_S = 2.0
SOON_S = 0.2
# What is promised is half a second, but the machine may be busy.
LATE_S = 4.0

URLS = {
    "redis": "redis://127.0.0.1:{port}",
    "postgresql": "postgresql://x@127.0.0.1:{port}/x",
    "mysql": "mysql://x@127.0.0.1:{port}/x",
    "dynamodb": "dynamodb://Table?region=eu-west-1&endpoint_url=http://127.0.0.1:{port}",
    "s3": "s3://bucket/locks?endpoint=http://127.0.0.1:{port}&region=us-east-1"
    "&access_key_id=a&secret_access_key=b",
    "azure": "az://c/locks?account_name=a&account_key=YQ%3D%3D&endpoint=http://127.0.0.1:{port}/a",
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """One whose queue of connections is full, so that the kernel drops all further ones."""
    with contextlib.ExitStack() as stack:
        hole = stack.enter_context(socket.socket())
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(hole.getsockname())
        yield hole.getsockname()[1]


async def answer(call: Callable[[], Any]) -> Any:
    """Make a call of either face."""
    outcome = call()
    return await outcome if hasattr(outcome, "__await__") else outcome


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some, for those who ask for them before they connect."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("store", URLS)
def test_calls_come_back(store: str, face: str, port: int) -> None:
    """With a timeout and without one; nothing was sent, and they say so. So does `close`."""
    connect: Any = holdfast.connect if face == "sync" else aio.connect
    url = URLS[store].format(port=port)

    async def run() -> None:
        locks = connect(url, request_timeout=REQUEST_TIMEOUT_S)
        calls = {
            "try_acquire": (REQUEST_TIMEOUT_S, lambda: locks.try_acquire("a")),
            "timeout": (0.5, lambda: locks.acquire("b", timeout=0.5)),
            "show": (REQUEST_TIMEOUT_S, lambda: locks.show("a")),
        }
        for name, (promised, call) in calls.items():
            began = time.monotonic()
            with pytest.raises(Unavailable):
                await answer(call)
            assert time.monotonic() - began < promised + LATE_S, name
        began = time.monotonic()
        await answer(locks.close)
        assert time.monotonic() - began < CLOSED_S + LATE_S

    asyncio.run(run())


@pytest.mark.parametrize("store", URLS)
def test_tasks_can_be_cancelled(store: str, port: int) -> None:
    """By `cancel()` and by `asyncio.timeout`: at once, though the patience is without end."""

    async def run() -> None:
        async with aio.connect(URLS[store].format(port=port), store_patience=None) as locks:
            task = asyncio.ensure_future(locks.acquire("cancelled"))
            await asyncio.sleep(SOON_S)
            began = time.monotonic()
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            assert time.monotonic() - began < LATE_S
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(SOON_S):
                    await locks.acquire("timed out")
            assert time.monotonic() - began < SOON_S + LATE_S

    asyncio.run(run())


# A socket that redis-py was just connecting is closed by Python, with a warning.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("store", URLS)
def test_a_signal_interrupts(store: str, port: int) -> None:
    """What its handler raises comes out at once, as Ctrl-C does."""

    def handler(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, handler)
    sent: list[float] = []

    def send() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGUSR1)

    timer = threading.Timer(SOON_S, send)
    try:
        with holdfast.connect(URLS[store].format(port=port), store_patience=None) as locks:
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                locks.acquire("interrupted")
            assert time.monotonic() - sent[0] < LATE_S
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
