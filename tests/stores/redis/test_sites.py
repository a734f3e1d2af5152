"""All the ways to name a Redis: URLs, TLS, socket files, and clients that exist already."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.sentinel

import holdfast
from holdfast import aio
from holdfast.errors import BadURL, Misconfigured
from holdfast.stores.redis import connection
from holdfast.stores.redis.connect import Settings, topology_from_url
from holdfast.stores.redis.connection import Connection
from holdfast.stores.redis.listener import Listener
from holdfast.stores.redis.resp import PING, pack
from holdfast.stores.registry import open_store
from holdfast.stores.url import parse
from tests.engines.base import free_port
from tests.engines.redis import RedisCluster, RedisServer, SentinelSetup
from tests.engines.shared import shared
from tests.engines.tls import new_certificate
from tests.helpers import until


def check_both_faces(place: Any, key: str, **options: Any) -> None:
    """Acquire and release through both faces."""
    with closing(holdfast.connect(place, **options)) as locks, locks.acquire(key) as lease:
        lease.renew()

    async def run() -> None:
        locks = aio.connect(place, **options)
        async with locks.acquire(key, timeout=5) as second:
            assert second.fence > lease.fence
            await second.renew()
        await locks.close()

    asyncio.run(run())


# --- URLs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "kind", "addresses", "service", "db"),
    [
        ("redis://h", "single", (("h", 6379),), "", None),
        ("redis://h:1/2", "single", (("h", 1),), "", 2),
        ("rediss://[::1]:7/1", "single", (("::1", 7),), "", 1),
        ("redis://", "single", (("localhost", 6379),), "", None),
        ("valkey://h?db=4", "single", (("h", 6379),), "", 4),
        ("unix:///run/redis.sock?db=3", "single", ("/run/redis.sock",), "", 3),
        ("redis+sentinel://a:1,b/m", "sentinel", (("a", 1), ("b", 26379)), "m", None),
        ("redis+sentinel://u:p@a,[::1]:5/m/2", "sentinel", (("a", 26379), ("::1", 5)), "m", 2),
        ("redis+cluster://a:1,b:2,", "cluster", (("a", 1), ("b", 2)), "", None),
        ("rediss+cluster://a", "cluster", (("a", 6379),), "", None),
    ],
)
def test_urls(url: str, kind: str, addresses: Any, service: str, db: int | None) -> None:
    """Every form of URL names its servers."""
    topology = topology_from_url(parse(url), {})
    assert (topology.kind, topology.addresses, topology.service) == (kind, addresses, service)
    assert topology.settings.options.get("db") == db
    assert topology.settings.tls is url.startswith("rediss")
    assert topology.settings.timeout_s == 5


def test_login_and_options_of_a_url() -> None:
    """User, password and options are read, also percent-encoded, and never shown."""
    options: dict[str, Any] = {"socket_timeout": 2}
    url = "redis+sentinel://me:p%40ss@h/m?sentinel_password=x&namespace=app"
    topology = topology_from_url(parse(url), options)
    assert topology.settings.options["username"] == "me"
    assert topology.settings.options["password"] == "p@ss"
    assert topology.settings.timeout_s == 2
    assert topology.sentinel_settings.options["password"] == "x"
    assert "username" not in topology.sentinel_settings.options
    assert options == {"namespace": "app"}
    assert "p@ss" not in repr(topology)


def test_switches_of_a_url() -> None:
    """`no` in a URL is no, and not a text that is not empty."""
    url = "rediss://h?ssl_check_hostname=no&socket_keepalive=yes"
    options = topology_from_url(parse(url), {}).settings.options
    assert options["ssl_check_hostname"] is False
    assert options["socket_keepalive"] is True


def test_namespaces_are_worlds_of_their_own(server: RedisServer, key: str) -> None:
    """Stores with different namespaces or databases do not see each other."""
    places = [server.url, server.url + "?namespace=other", server.url[:-1] + "1"]
    stores = [holdfast.connect(place) for place in places]
    leases = [locks.acquire(key, timeout=0) for locks in stores]
    assert len(list(stores[1].list(""))) == 1
    for lease in leases:
        assert lease.release()
    for locks in stores:
        locks.close()


# --- sockets and TLS ------------------------------------------------------------------------


def test_unix_socket(tmp_path: Path, key: str) -> None:
    """A socket file works through both faces."""
    shared(RedisServer)
    path = tmp_path / "r.sock"
    with RedisServer("--unixsocket", str(path)):
        check_both_faces(f"unix://{path}", key)


def _tls_server(port: int, certificate: Path, secret: Path, asks_clients: str) -> RedisServer:
    return RedisServer(
        "--tls-port", str(port), "--tls-cert-file", str(certificate),
        "--tls-key-file", str(secret), "--tls-ca-cert-file", str(certificate),
        "--tls-auth-clients", asks_clients,
    )  # fmt: skip


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[str]:
    """A server that speaks TLS only, with a certificate of its own; its URL."""
    shared(RedisServer)
    certificate, secret = new_certificate(tmp_path)
    port = free_port()
    with _tls_server(port, certificate, secret, asks_clients="no"):
        yield f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificate}"


def test_tls(tls: str, key: str) -> None:
    """TLS works through both faces; a certificate that nobody vouches for does not."""
    check_both_faces(tls, key)
    with closing(open_store(tls.partition("?")[0])) as store:
        with pytest.raises(Misconfigured, match="certificate"):
            store.load(key)


def test_client_with_a_certificate_of_its_own(tmp_path: Path, key: str) -> None:
    """What a client needs for TLS is taken over from it, also the password of its key."""
    shared(RedisServer)
    certificate, secret = new_certificate(tmp_path)
    locked = tmp_path / "locked.key"
    with_password = ["openssl", "rsa", "-aes128", "-passout", "pass:s3cret"]
    subprocess.run(
        [*with_password, "-in", str(secret), "-out", str(locked)], check=True, capture_output=True
    )
    subprocess.run(["openssl", "rehash", tmp_path], check=True, capture_output=True)
    port = free_port()
    with _tls_server(port, certificate, secret, asks_clients="yes"):
        client = redis.Redis(
            host="127.0.0.1", port=port, ssl=True, ssl_ca_path=str(tmp_path),
            ssl_certfile=str(certificate), ssl_keyfile=str(locked), ssl_password="s3cret",
        )  # fmt: skip
        assert client.ping()
        check_both_faces(client, key)
        client.close()


def test_waiting_over_tls(tls: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits is told, and the line that tells it stays when nobody waits any more."""
    lines: list[Connection] = []
    listen = Listener._listen

    def listen_and_count(listener: Listener, line: Connection) -> None:
        lines.append(line)
        listen(listener, line)

    monkeypatch.setattr(Listener, "_listen", listen_and_count)
    with holdfast.connect(tls) as locks, holdfast.connect(tls) as others:
        for _ in range(3):
            lease = locks.acquire(key)
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(others.acquire, key)
                until(lambda: locks.show(key).waiters != ())
                lease.release()
                waiting.result(20).release()
        time.sleep(2)  # in which the listener goes on to read
    assert len(lines) == 1


def test_nobody_sends_while_another_thread_reads_over_tls(
    tls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL does not allow that on one connection: records are damaged, or the process ends."""
    sending, reading = threading.Event(), threading.Event()
    overlaps: list[bool] = []
    send, receive = ssl.SSLSocket.send, ssl.SSLSocket.recv_into

    def send_seen(*args: Any) -> int:
        sending.set()
        return send(*args)

    def receive_slowly(*args: Any) -> int:
        if threading.current_thread() is reader:
            reading.set()
            overlaps.append(sending.wait(0.3))
        return receive(*args)

    line = _line_to(tls)
    monkeypatch.setattr(ssl.SSLSocket, "send", send_seen)
    monkeypatch.setattr(ssl.SSLSocket, "recv_into", receive_slowly)
    replies: list[Any] = []
    reader = threading.Thread(target=lambda: replies.extend(line.read_within(20) for _ in "12"))
    line.send(PING)
    sending.clear()
    reader.start()
    assert reading.wait(20)
    line.send(PING)  # while the thread reads the first reply
    reader.join(20)
    line.close()
    assert replies == [b"PONG", b"PONG"]
    assert not overlaps[0]


def test_server_that_stops_amid_a_reply_over_tls(tls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wants to send waits for a moment and not for the rest of the reply."""
    monkeypatch.setattr(connection, "MOST_TURN_S", 0.01)
    line = _line_to(tls)
    assert line._turn is not None
    with line._turn, pytest.raises(ConnectionResetError, match="amid a reply"):
        line.send(PING)
    with pytest.raises(ConnectionResetError):
        line.read_within(20)


def test_line_that_broke_when_something_was_sent(server: RedisServer) -> None:
    """It is not opened anew beneath whoever reads, who would hear nothing there for ever."""
    line = _line_to(server.url)
    number = line.look(pack(b"CLIENT", b"ID"))
    with closing(_line_to(server.url)) as other:
        other.look(pack(b"CLIENT", b"KILL", b"ID", number))
    until(lambda: _breaks_when_sent(line))
    with pytest.raises(ConnectionResetError):
        line.read_within(20)


def _breaks_when_sent(line: Connection) -> bool:
    try:
        line.send(PING)
    except ConnectionResetError:
        return True
    return False


def _line_to(url: str) -> Connection:
    topology = topology_from_url(parse(url), {})
    return Connection.open(topology.settings, topology.addresses[0])


# --- clients that exist ---------------------------------------------------------------------

Sentinel: Any = redis.sentinel.Sentinel  # redis-py's own types are missing here
AsyncSentinel: Any = redis.asyncio.sentinel.Sentinel
Pool: Any = redis.BlockingConnectionPool

CLIENTS: dict[str, Callable[[], Any]] = {
    "redis": lambda: redis.Redis(port=shared(RedisServer).port),
    "asyncio": lambda: redis.asyncio.Redis(port=shared(RedisServer).port),
    "url": lambda: redis.Redis.from_url(shared(RedisServer).url, decode_responses=True),
    "resp3": lambda: redis.Redis(port=shared(RedisServer).port, protocol=3),
    "pool": lambda: Pool(port=shared(RedisServer).port),
    "sentinel": lambda: Sentinel(sentinels()).master_for("locks"),
    "asyncio sentinel": lambda: AsyncSentinel(sentinels()).master_for("locks"),
    "cluster": lambda: redis.RedisCluster(
        port=shared(RedisCluster).nodes[0].port, host="127.0.0.1"
    ),
    "asyncio cluster": lambda: redis.asyncio.cluster.RedisCluster(
        port=shared(RedisCluster).nodes[0].port, host="127.0.0.1"
    ),
}


def sentinels() -> list[tuple[str, int]]:
    """The addresses of the shared Sentinels."""
    return [("127.0.0.1", sentinel.port) for sentinel in shared(SentinelSetup).sentinels]


@pytest.mark.parametrize("kind", CLIENTS)
def test_clients_that_exist(kind: str, key: str) -> None:
    """A redis-py client of any kind stands for its store, through both faces."""
    client = CLIENTS[kind]()
    check_both_faces(client, key)
    if hasattr(client, "close") and "asyncio" not in kind:
        client.close()


def test_strangers_are_no_store() -> None:
    """What is no client of a known library is a mistake."""
    with pytest.raises(BadURL):
        holdfast.connect(object())
    with pytest.raises(Exception, match="not a Redis client"):
        holdfast.connect(redis.exceptions.RedisError("x"))


@pytest.mark.parametrize("module", [redis.connection, redis.asyncio.connection])
def test_an_option_that_this_redis_py_does_not_know(module: Any) -> None:
    """As 6.0 does not know `ssl_ca_path` for asyncio, and calls it a TypeError."""
    settings = Settings(True, {"ssl_of_tomorrow": 1})
    with pytest.raises(Misconfigured, match="ssl_of_tomorrow"):
        settings.connection(module, None, ("127.0.0.1", 1))
