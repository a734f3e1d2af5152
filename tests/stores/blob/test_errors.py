"""What each way to fail says of a write: surely not done, or perhaps done.

obstore tells most of it by its text alone, so every row is provoked, with the real library.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

import holdfast
from holdfast.core.contract import Swapped
from holdfast.core.records import Record
from holdfast.errors import HoldfastError, Misconfigured, OutcomeUnknown, Unavailable
from holdfast.stores.base import Store
from holdfast.stores.registry import open_store
from tests.engines.azurite import ACCOUNT
from tests.engines.base import free_port
from tests.engines.tls import TLSFront, new_certificate
from tests.shortage import no_descriptors
from tests.stores.blob.conftest import port_of, url_of
from tests.stores.breaking import Break, BreakingServer

SERVERS = pytest.mark.parametrize("kind", ["az", "s3"])


def failure(store: Store, key: str = "k") -> HoldfastError:
    """What a write fails with, blocking and awaited."""
    with pytest.raises(HoldfastError) as caught:
        store.swap(key, None, Record(7))
    with pytest.raises(HoldfastError) as awaited:
        asyncio.run(store.to_async().swap(key, None, Record(7)))
    assert type(awaited.value) is type(caught.value)
    assert caught.value.__cause__ is not None
    return caught.value


def answer(status: int, body: bytes = b"", *headers: bytes) -> bytes:
    """A whole reply, after which the connection ends."""
    lines = [b"HTTP/1.1 %d No" % status, b"Connection: close", *headers]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


# --- connections that break -----------------------------------------------------------------

DONE = Break(passes_on=True)
HEAD = b"HTTP/1.1 200 OK\r\nETag: "
BREAKS = {
    "reset before it was read": Break(reads=False, reset=True),
    "closed before it was read": Break(reads=False),
    "reset before it was done": Break(reset=True),
    "closed before it was done": Break(),
    "reset after it was done": DONE._replace(reset=True),
    "closed after it was done": DONE,
    "halved, then reset": DONE._replace(reply=0.3, reset=True),
    "halved, then closed": DONE._replace(reply=0.3),
    "late": DONE._replace(reply=1.0, late_s=2.0),
    "no HTTP": DONE._replace(reply=b"hello\r\n\r\n"),
    "half a header": DONE._replace(reply=HEAD),
    "half an error": DONE._replace(reply=b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nx"),
    "half a refusal": DONE._replace(reply=b"HTTP/1.1 403 No\r\nContent-Length: 9\r\n\r\nx"),
    "an error": DONE._replace(reply=answer(503)),
    "too slow": DONE._replace(reply=answer(408)),
}


@SERVERS
@pytest.mark.parametrize("how", BREAKS)
def test_a_write_that_was_broken_off_is_unknown(kind: str, how: str, tmp_path: Path) -> None:
    """Whatever became of the connection: the request had left, and may have been carried out."""
    with BreakingServer(port_of(kind), BREAKS[how]) as server:
        store = open_store(url_of(kind, tmp_path, server.port) + "&timeout_s=1")
        for key in ("k", "last-modified", "NoSuchBucket", "Connect", "169.254.169.254"):
            assert type(failure(store, key)) is OutcomeUnknown
            if how == "late":
                break
        server.how = None
        found = store.load("k").record.fence
        assert found == (7 if BREAKS[how].passes_on else 0)
        store.close()


@SERVERS
@pytest.mark.parametrize("how", [how for how in BREAKS if how != "late"])
def test_a_read_that_was_broken_off_was_not_done(kind: str, how: str, tmp_path: Path) -> None:
    """A load and a listing can be tried again, whatever the key's name."""
    with BreakingServer(port_of(kind), BREAKS[how], (b"GET ",)) as server:
        store = open_store(url_of(kind, tmp_path, server.port) + "&timeout_s=1")
        for key in ("k", "last-modified", "NoSuchBucket"):
            with pytest.raises(Unavailable):
                store.load(key)
            with pytest.raises(Unavailable):
                store.scan(key, None, 10)
        store.close()


@SERVERS
def test_a_claim_whose_reply_was_reset_is_found_again(kind: str, tmp_path: Path) -> None:
    """`try_acquire` looks for its own write, instead of leaving a lock that nobody knows of."""
    with BreakingServer(port_of(kind), BREAKS["reset after it was done"], (b"PUT ",)) as server:
        url = url_of(kind, tmp_path, server.port)
        with holdfast.connect(url, ttl=60) as locks:
            server.how = None
            locks.acquire("other").release()  # the clock is known now
            server.how = BREAKS["reset after it was done"]
            lease = locks.try_acquire("k")
            server.how = None
            assert lease is not None
            assert lease.release() is True
            assert locks.show("k").free


# --- no connection --------------------------------------------------------------------------


def _at(kind: str, tmp_path: Path, endpoint: str) -> str:
    """A store at another endpoint."""
    url = url_of(kind, tmp_path)
    before, _, rest = url.partition("endpoint=")
    path = f"/{ACCOUNT}" if kind == "az" else ""
    return f"{before}endpoint={quote(endpoint + path, safe='')}&{rest.partition('&')[2]}"


@SERVERS
@pytest.mark.parametrize("key", ["k", "last-modified", "NoSuchBucket"])
def test_without_a_connection_nothing_was_done(kind: str, key: str, tmp_path: Path) -> None:
    """Nobody listens, or nobody knows where: surely not done, and it may work later."""
    for endpoint in (f"http://127.0.0.1:{free_port()}", "http://no-such-host.invalid"):
        store = open_store(_at(kind, tmp_path, endpoint))
        assert type(failure(store, key)) is Unavailable
        with pytest.raises(Unavailable):
            store.load(key)
        store.close()


@SERVERS
def test_a_certificate_that_cannot_be_trusted(kind: str, tmp_path: Path) -> None:
    """Nothing was sent, and nothing will be before somebody mends it."""
    with TLSFront(port_of(kind), new_certificate(tmp_path)) as front:
        store = open_store(_at(kind, tmp_path, f"https://127.0.0.1:{front.port}"))
        assert type(failure(store)) is Misconfigured
        with pytest.raises(Misconfigured, match="certificate"):
            store.load("k")
        store.close()


@SERVERS
def test_a_service_that_is_elsewhere(kind: str, tmp_path: Path) -> None:
    """A redirection is an answer: it was not done, and the address is wrong."""
    reply = answer(307, b"", b"Location: http://127.0.0.1:1/")
    with BreakingServer(port_of(kind), Break(reply=reply)) as server:
        store = open_store(url_of(kind, tmp_path, server.port))
        assert type(failure(store)) is Misconfigured
        assert "endpoint" in str(failure(store))
        store.close()


@SERVERS
@pytest.mark.parametrize(("status", "said"), [(429, b""), (400, b"<Code>ExpiredToken</Code>")])
def test_refusals_that_pass(kind: str, status: int, said: bytes, tmp_path: Path) -> None:
    """The service says that it did not do it; the next time it may."""
    with BreakingServer(port_of(kind), Break(reply=answer(status, said))) as server:
        store = open_store(url_of(kind, tmp_path, server.port))
        assert type(failure(store)) is Unavailable
        store.close()


@SERVERS
def test_a_page_of_somebody_elses(kind: str, tmp_path: Path) -> None:
    """Who answers every request with `404` is not the service: that is no empty store."""
    break_off = Break(reply=answer(404, b"Hello"))
    with BreakingServer(port_of(kind), break_off, (b"PUT ", b"GET ")) as server:
        store = open_store(url_of(kind, tmp_path, server.port))
        assert type(failure(store)) is Misconfigured
        with pytest.raises(Misconfigured, match="404"):
            store.setup()
        store.close()


# --- keys that look like trouble --------------------------------------------------------------


@pytest.mark.parametrize("key", ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"])
def test_a_key_that_reads_like_an_error(bucket_url: str, key: str) -> None:
    """A key is in the text of every error about its object, and is no sign of anything."""
    with holdfast.connect(bucket_url) as locks:
        assert locks.show(key).free
        with locks.acquire(key, timeout=0):
            assert not locks.show(key).free


# --- no file descriptors ----------------------------------------------------------------------


def test_a_client_without_descriptors(bucket_url: str) -> None:
    """A new client and a new connection say what to do; later they work."""
    open_store(bucket_url).close()
    store = open_store(bucket_url)
    with no_descriptors():
        with pytest.raises(Unavailable, match="ulimit -n"):
            open_store(bucket_url)
        with pytest.raises(Unavailable, match="ulimit -n"):
            store.swap("k", None, Record(7))
    assert isinstance(store.swap("k", None, Record(7)), Swapped)
    store.close()
    open_store(bucket_url).close()


FIRST = """
import sys
import holdfast
import holdfast.stores.blob.store  # to import it takes descriptors too
from holdfast.errors import Unavailable
from tests.shortage import no_descriptors
holdfast.connect("memory://").close()
for left in range(8):
    with no_descriptors(left):
        try:
            with holdfast.connect(sys.argv[1]) as locks:
                locks.try_acquire("k")
        except Unavailable as exc:
            assert "ulimit -n" in str(exc), exc
        else:
            raise SystemExit(f"used with {left}")
with holdfast.connect(sys.argv[1]) as locks, locks.acquire("k") as lease:
    print(lease.fence)
"""


def test_the_first_client_without_descriptors(bucket_url: str) -> None:
    """obstore would panic, then and ever after: it is not asked before it can start."""
    command = [sys.executable, "-c", FIRST, bucket_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
