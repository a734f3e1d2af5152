"""Servers that freeze, connections that break, and replies that get lost on the way."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from obstore.store import AzureStore

import holdfast
from holdfast import aio
from holdfast.core.contract import Swapped
from holdfast.core.records import Record
from holdfast.errors import OutcomeUnknown, StoreFull, Unavailable
from holdfast.stores.registry import open_store
from tests.conformance.blob_targets import azure_url
from tests.engines.azurite import ACCOUNT, ACCOUNT_KEY, Azurite
from tests.engines.proxy import Proxy
from tests.engines.shared import shared
from tests.helpers import unique, until
from tests.stores.blob.conftest import port_of, url_of

SERVERS = pytest.mark.parametrize("kind", ["az", "s3"])


@SERVERS
def test_reset_after_a_write(kind: str, tmp_path: Path) -> None:
    """A write whose reply is reset is unknown; it was done, and a load finds it."""
    with Proxy(port_of(kind)) as proxy:
        store = open_store(url_of(kind, tmp_path, proxy.port))
        proxy.mode = "reset replies"
        with pytest.raises(OutcomeUnknown) as caught:
            store.swap("k", None, Record(7))
        assert caught.value.__cause__ is not None
        with pytest.raises(Unavailable):
            store.load("k")
        proxy.mode = "pass"
        assert store.load("k").record.fence == 7


@SERVERS
@pytest.mark.parametrize("mode", ["drop requests", "drop replies"])
def test_no_answer(kind: str, mode: Any, tmp_path: Path) -> None:
    """A request that is never answered ends after the time allowed, as unknown; asyncio too."""

    async def unanswered(store: Any) -> None:
        with pytest.raises(OutcomeUnknown):
            await store.swap("a", None, Record(7))

    with Proxy(port_of(kind)) as proxy:
        store = open_store(url_of(kind, tmp_path, proxy.port) + "&timeout_s=0.5")
        proxy.mode = mode
        with pytest.raises(OutcomeUnknown):
            store.swap("k", None, Record(7))
        asyncio.run(unanswered(store.to_async()))
        proxy.mode = "pass"
        for key in ("k", "a"):
            assert store.load(key).record.fence == (7 if mode == "drop replies" else 0)


@SERVERS
def test_a_lease_survives_lost_replies(kind: str, tmp_path: Path) -> None:
    """Beats whose replies get lost are looked for, and found to have been done."""
    with Proxy(port_of(kind)) as proxy:
        url = url_of(kind, tmp_path, proxy.port) + "&timeout_s=1"
        with holdfast.connect(url, ttl=30) as locks:
            lease = locks.acquire("k", keep=False)
            proxy.mode = "reset replies"
            timer = threading.Timer(0.3, setattr, (proxy, "mode", "pass"))
            timer.start()
            for _ in range(20):
                try:
                    lease.renew()
                    break
                except (OutcomeUnknown, Unavailable):
                    time.sleep(0.1)
            timer.join()
            assert lease.held
            assert lease.release() is True


def retrying(server: Azurite, port: int, times: int) -> AzureStore:
    """A store of an application's that tries again by itself."""
    soon = timedelta(milliseconds=20)
    return AzureStore(
        "locks",
        account_name=ACCOUNT,
        account_key=ACCOUNT_KEY,
        endpoint=server.endpoint.replace(str(server.port), str(port)),
        client_options={"allow_http": True, "timeout": "2s"},
        retry_config={
            "max_retries": times,
            "backoff": {"init_backoff": soon, "max_backoff": soon},
        },
    )


def test_a_write_that_obstore_sends_twice_is_our_own() -> None:
    """Below us a write is tried again whose first try was done: that is no conflict."""
    server = shared(Azurite)
    server.create_container("locks")
    with Proxy(server.port) as proxy:
        store = open_store(retrying(server, proxy.port, 30), prefix=unique())
        version = None
        for fence in (1, 2, 3):
            proxy.mode = "reset replies"
            threading.Timer(0.2, setattr, (proxy, "mode", "pass")).start()
            outcome = store.swap("k", version, Record(fence))
            assert isinstance(outcome, Swapped)
            version = outcome.version
            assert store.load("k").version == version


class OneWrite(Proxy):
    """Loses the reply to the first write, and those to all reads after it."""

    writes = 0

    def count(self, data: bytes) -> int:
        self.writes += data.startswith(b"PUT ")
        lost = self.writes == 1 or (self.writes > 1 and data.startswith(b"GET "))
        self.mode = "reset replies" if lost else "pass"
        return super().count(data)


def test_a_write_that_is_sent_twice_and_cannot_be_looked_at() -> None:
    """What refused the second try may be the first one: that is unknown, and not undone."""
    server = shared(Azurite)
    server.create_container("locks")
    with OneWrite(server.port) as proxy:
        store = open_store(retrying(server, proxy.port, 2), prefix=unique())
        with pytest.raises(OutcomeUnknown):
            store.swap("k", None, Record(7))
        proxy.writes = 0
        assert store.load("k").record.fence == 7


def test_a_write_that_is_sent_again_to_nobody() -> None:
    """That the last try found nobody says nothing of the first one, which was carried out."""
    server = shared(Azurite)
    server.create_container("locks")
    with ThreadPoolExecutor(1) as pool:
        with Proxy(server.port) as proxy:
            store, prefix = retrying(server, proxy.port, 2), unique()
            direct = open_store(retrying(server, server.port, 2), prefix=prefix)
            proxy.mode = "drop replies"
            writing = pool.submit(open_store(store, prefix=prefix).swap, "k", None, Record(7))
            until(lambda: direct.load("k").record.fence == 7)
        with pytest.raises(OutcomeUnknown):
            writing.result(30)


def test_a_frozen_server_is_waited_for() -> None:
    """An acquire rides out a server that stands still for a while."""
    server = Azurite()
    with server:
        with holdfast.connect(azure_url(server) + "&timeout_s=0.5") as locks:
            locks.acquire("k").release()
            server.pause()
            threading.Timer(1.0, server.resume).start()
            with locks.acquire("k", timeout=30) as lease:
                assert lease.held


def test_cancelled_write_has_finished(bucket_url: str) -> None:
    """When a cancelled swap has ended, its write is done or will never be."""

    async def run() -> None:
        store = open_store(bucket_url).to_async()
        for number in range(10):
            key = f"k{number}"
            swap = asyncio.ensure_future(store.swap(key, None, Record(1)))
            await asyncio.sleep(number * 0.0005)
            swap.cancel()
            await asyncio.wait({swap})
            seen = await store.load(key)
            await asyncio.sleep(0.01)
            assert (await store.load(key)).version == seen.version
        await store.close()

    asyncio.run(run())


def test_closing_ends_waits(url: str) -> None:
    """Closing a store lets its waiters go."""
    store = open_store(url)
    swapped = store.swap("k", None, Record(1))
    assert isinstance(swapped, Swapped)
    waiting = threading.Thread(target=store.wait, args=("k", swapped.version, "t", 60_000_000))
    waiting.start()
    store.close()
    until(lambda: not waiting.is_alive())


def test_asyncio_does_not_block(bucket_url: str) -> None:
    """Other tasks run while a store is asked."""

    async def run() -> int:
        ticks = 0
        async with aio.connect(bucket_url) as locks:
            lease = await locks.acquire("k")
            waiting = asyncio.ensure_future(locks.acquire("k", timeout=0.3))
            while not waiting.done():
                await asyncio.sleep(0.01)
                ticks += 1
            with pytest.raises(holdfast.AcquireTimeout):
                await waiting
            await lease.release()
        return ticks

    assert asyncio.run(run()) > 5


def test_a_disk_that_takes_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is written whole, or not at all: half of one would be a damaged lock."""
    left, write = 10_000, os.write

    def write_a_part(opened: int, raw: bytes) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(opened, raw[: min(7, left)])
        left -= written
        return written

    store = open_store(f"file://{tmp_path}/locks")
    monkeypatch.setattr(os, "write", write_a_part)
    made = store.swap("k", None, Record(7))
    assert isinstance(made, Swapped)
    assert store.load("k").record == Record(7)
    left = 20
    with pytest.raises(StoreFull):
        store.swap("k", made.version, Record(8))
    assert store.load("k").record == Record(7)


class _Late(BaseHTTPRequestHandler):
    """What S3 answers to a request that it did not get in time."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        said = b"<Error><Code>RequestTimeout</Code><Message>x</Message></Error>"
        self.send_response_only(400)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_PUT

    def log_message(self, *args: Any) -> None:
        pass


def test_what_s3_says_of_a_slow_request_may_pass() -> None:
    """It has the status of a mistake, 400, and is none: who waits goes on trying."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Late) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        store = open_store(
            f"s3://bucket/locks?region=eu-west-1&endpoint=http://127.0.0.1:{server.server_port}"
            f"&access_key_id=a&secret_access_key=b"
        )
        with pytest.raises(OutcomeUnknown):
            store.swap("k", None, Record(7))
        server.shutdown()


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_file_server_that_fails_at_the_last_step(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record may be in place though the answer was an error: that is unknown, not undone."""
    store = open_store(f"file://{tmp_path}", fsync=True)
    usual: Any = getattr(os, step)

    def fails_afterwards(what: Any, *more: Any) -> None:
        usual(what, *more)
        if step == "replace" or stat.S_ISDIR(os.fstat(what).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, step, fails_afterwards)
    with pytest.raises(OutcomeUnknown):
        store.swap("k", None, Record(7))
    monkeypatch.undo()
    assert store.load("k").record.fence == 7


def test_a_rename_that_was_sent_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first was done and its answer lost; the second finds no file. That is unknown."""
    store = open_store(f"file://{tmp_path}")
    usual: Any = os.replace

    def twice(*what: Any) -> None:
        usual(*what)
        usual(*what)

    monkeypatch.setattr(os, "replace", twice)
    with pytest.raises(OutcomeUnknown):
        store.swap("k", None, Record(7))
    monkeypatch.undo()
    assert store.load("k").record.fence == 7


def test_a_file_server_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is told in our words, and the file is not kept open."""
    store = open_store(f"file://{tmp_path}")

    def refuse(opened: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(Unavailable, match="locks"):
        store.swap("k", None, Record(7))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
