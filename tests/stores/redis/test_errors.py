"""What can be wrong with a server, each told in words that help, and never with a password."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from redis.exceptions import RedisError

import holdfast
from holdfast.core.commands import Claim
from holdfast.errors import (
    BadOption,
    BadURL,
    ForeignStore,
    HoldfastError,
    Misconfigured,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)
from holdfast.stores.redis.errors import RIGHTS
from holdfast.stores.registry import open_store
from tests.engines.base import free_port
from tests.engines.redis import ClusterNode, RedisReplica, RedisServer, client
from tests.engines.shared import shared

ROOT = Path(__file__).parents[3]
CLAIM = Claim("t" * 32, "o", "exclusive", 60_000_000)


def claim(url: str, key: str) -> None:
    """Claim once."""
    with closing(open_store(url)) as store:
        store.apply(key, CLAIM, "b")


async def claim_async(url: str, key: str) -> None:
    """Claim once, through asyncio."""
    store = open_store(url).to_async()
    try:
        await store.apply(key, CLAIM, "b")
    finally:
        await store.close()


def trouble(url: str, key: str = "k", face: str = "sync") -> HoldfastError:
    """What a claim raises."""

    with pytest.raises(HoldfastError) as caught:
        claim(url, key) if face == "sync" else asyncio.run(claim_async(url, key))
    assert caught.value.__cause__ is not None
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__}"
    return caught.value


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest) -> str:
    """Both faces."""
    return str(request.param)


# --- who may do what ------------------------------------------------------------------------


def test_the_docs_give_the_rights_that_the_error_names() -> None:
    """Who copies one or the other into an ACL gets all that is needed."""
    page = (ROOT / "docs" / "stores" / "redis.md").read_text()
    rule = page.partition("ACL SETUSER")[2].partition("```")[0]
    assert set(re.findall(r"\+\S+", rule)) == set(RIGHTS.split())


def test_wrong_password(victim: RedisServer, face: str) -> None:
    """A refused login says so."""
    with client(victim.port) as redis:
        redis.config_set("requirepass", "s3cret")
    for user in ("", ":wrong-s3cret@", "nobody:s3cret@"):
        error = trouble(f"redis://{user}127.0.0.1:{victim.port}", face=face)
        assert type(error) is Misconfigured
        assert "password" in str(error)


def test_password_that_is_not_wanted(server: RedisServer, face: str) -> None:
    """A password for a server that has none is refused by the server, and told."""
    error = trouble(f"redis://:s3cret@127.0.0.1:{server.port}", face=face)
    assert type(error) is Misconfigured


def test_user_without_script_rights(victim: RedisServer, face: str) -> None:
    """A user who may not run scripts is told which rights to get."""
    with client(victim.port) as redis:
        redis.acl_setuser("app", enabled=True, passwords=["+s3cret"], keys=["*"],
                          commands=["+@all", "-@scripting"])  # fmt: skip
    error = trouble(f"redis://app:s3cret@127.0.0.1:{victim.port}", face=face)
    assert type(error) is Misconfigured
    assert "+evalsha" in str(error)


def test_rights_in_the_message_are_enough(victim: RedisServer) -> None:
    """A user with just the rights that the message names can do everything."""
    from holdfast.core.commands import Free
    from holdfast.stores.redis.errors import RIGHTS

    with client(victim.port) as redis:
        redis.execute_command(
            "ACL", "SETUSER", "app", "on", ">s3cret", "~holdfast:*", "&holdfast:*", *RIGHTS.split()
        )
    with closing(open_store(f"redis://app:s3cret@127.0.0.1:{victim.port}")) as store:
        first = store.apply("k", CLAIM, "b")
        store.apply("k", Free(CLAIM.token), "c")
        assert [key for key, _ in store.scan("", None, 10).entries] == ["k"]
        store.wait("k", first.version, "t", 5_000_000)
        assert store.load("k").record.fence
        store.setup()


# --- what is there --------------------------------------------------------------------------


def test_key_of_another_type(server: RedisServer, store: object, key: str, face: str) -> None:
    """A key that somebody else uses is left alone."""
    with client(server.port) as redis:
        redis.rpush(f"holdfast:{{{key}}}", "theirs")
        error = trouble(server.url, key, face)
        assert type(error) is ForeignStore
        assert redis.lrange(f"holdfast:{{{key}}}", 0, -1) == [b"theirs"]


def test_index_of_another_type(victim: RedisServer, key: str) -> None:
    """If the index cannot be written, nothing is."""
    with client(victim.port) as redis:
        redis.set("holdfast:index", "theirs")
        assert type(trouble(victim.url, key)) is ForeignStore
        assert redis.dbsize() == 1


def test_read_only_replica(server: RedisServer, face: str) -> None:
    """A replica cannot lock; its master can."""
    with RedisReplica(server.port) as replica:
        error = trouble(f"redis://127.0.0.1:{replica.port}", face=face)
    assert type(error) is StoreReadOnly
    assert "master" in str(error)


def test_out_of_memory(victim: RedisServer, key: str, face: str) -> None:
    """A full server is told as such, and nothing was done; it works when there is room."""
    with client(victim.port) as redis:
        redis.config_set("maxmemory", 1)
        assert type(trouble(victim.url, key, face)) is StoreFull
        redis.config_set("maxmemory", 0)
        assert redis.dbsize() == 0


def test_release_when_out_of_memory(victim: RedisServer, key: str) -> None:
    """A full server takes no new lock, but gives back one that is held."""
    with client(victim.port) as redis, closing(holdfast.connect(victim.url)) as locks:
        with locks.acquire(key):
            pass
        lease = locks.acquire(key)
        redis.config_set("maxmemory", 1)
        assert lease.release() is True
        redis.config_set("maxmemory", 0)
        with locks.acquire(key, timeout=0) as heir:
            assert heir.fence > lease.fence


# --- who is not ready -----------------------------------------------------------------------


def test_connection_refused(face: str) -> None:
    """An address where nobody listens is named."""
    port = free_port()
    error = trouble(f"redis://:s3cret@127.0.0.1:{port}", face=face)
    assert type(error) is Unavailable
    assert str(port) in str(error)


def test_loading(victim: RedisServer, face: str) -> None:
    """A server that still loads its data is not available yet."""
    with client(victim.port) as redis:
        redis.mset({f"k{i}": "x" * 1000 for i in range(200)})
        redis.save()
    slow = ("--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
    victim.arguments, victim.signs = slow, (b"-LOADING",)
    victim.restart()
    error = trouble(victim.url, face=face)
    assert type(error) is Unavailable
    assert "loading" in str(error).lower()


def test_master_of_a_replica_is_down(victim: RedisServer, face: str) -> None:
    """A replica that lost its master, and must not serve, says so."""
    with RedisReplica(victim.port, "--replica-serve-stale-data", "no") as replica:
        victim.kill()
        error = trouble(f"redis://127.0.0.1:{replica.port}", face=face)
    assert isinstance(error, Unavailable | StoreReadOnly)
    assert "MASTERDOWN" in str(error) or "READONLY" in str(error)


def test_too_many_clients(victim: RedisServer, face: str) -> None:
    """A server without a free place is not available."""
    with client(victim.port) as redis:
        redis.config_set("maxclients", 1)
        error = trouble(victim.url, face=face)
    assert type(error) is Unavailable


# --- clusters that are not, and servers that are --------------------------------------------


def test_cluster_without_slots(face: str) -> None:
    """A cluster in which nobody serves a slot is down."""
    shared(RedisServer)
    with ClusterNode() as node:
        assert type(trouble(f"redis://127.0.0.1:{node.port}", face=face)) is Unavailable
        with pytest.raises(Unavailable, match="slot"):
            open_store(f"redis+cluster://127.0.0.1:{node.port}").apply("k", CLAIM, "b")


def test_plain_url_of_a_cluster(face: str) -> None:
    """A cluster behind a plain URL is told how to connect, whatever the key."""
    from tests.engines.redis import RedisCluster

    cluster = shared(RedisCluster)
    # The index and the record are in two slots, or the slot is another server's.
    error = trouble(f"redis://127.0.0.1:{cluster.nodes[0].port}", face=face)
    assert type(error) is Misconfigured
    assert "redis+cluster://" in str(error)


@pytest.mark.parametrize("url", ["redis+cluster://{}", "redis+sentinel://{}/locks"])
def test_other_urls_of_a_plain_server(server: RedisServer, face: str, url: str) -> None:
    """A server that is neither a cluster nor a Sentinel is not too old: it has another URL."""
    error = trouble(url.format(f"127.0.0.1:{server.port}"), face=face)
    assert type(error) is Misconfigured
    assert "connect with redis://" in str(error)


def test_unknown_service(face: str) -> None:
    """A Sentinel that does not know the service is no help."""
    from tests.engines.redis import SentinelSetup

    setup = shared(SentinelSetup)
    url = f"redis+sentinel://127.0.0.1:{setup.sentinels[0].port}/other"
    with pytest.raises(Unavailable, match="'other'"):
        open_store(url).apply("k", CLAIM, "b")


# --- servers that are too old ---------------------------------------------------------------


@contextmanager
def old_server(reply: bytes) -> Iterator[int]:
    """Something that speaks like a Redis of long ago: it answers every script the same way."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    while data := connection.recv(65536):
                        for _ in range(data.count(b"\r\n*") + 1):
                            connection.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "reply",
    [
        b"-ERR unknown command 'EVALSHA'\r\n",
        b"-ERR Error running script (call to f_x): @user_script:1: Write commands not allowed "
        b"after non deterministic commands\r\n",
    ],
)
def test_too_old(reply: bytes) -> None:
    """A server that cannot run the scripts is told which one can."""
    with old_server(reply) as port:
        error = trouble(f"redis://127.0.0.1:{port}")
    assert type(error) is Misconfigured
    assert "5.0" in str(error)


def test_setup_refuses_an_old_version() -> None:
    """Setting up looks at the version."""
    from holdfast.stores.redis.setup import check_server

    check_server(b"redis_version:7.0.15\r\nmaxmemory:0\r\n")
    check_server(b"redis_version:5.0.0\r\n")
    with pytest.raises(Misconfigured, match=r"4\.0\.14"):
        check_server(b"# Server\r\nredis_version:4.0.14\r\n")


def test_setup_warns_of_eviction(victim: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """A server that drops keys when memory is short drops locks: setting up says so."""
    with client(victim.port) as redis:
        redis.config_set("maxmemory", "1gb")
        redis.config_set("maxmemory-policy", "allkeys-lru")
    with closing(open_store(victim.url)) as store:
        store.setup()
    assert "allkeys-lru" in caplog.text


# --- what callers write ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "redis://host/abc",
        "redis://host/0/1",
        "redis://a:1,b:2/0",
        "redis+sentinel://a:1,b:2",
        "redis+cluster://a:1/3",
        "redis+cluster://a:b,c:d",
        "redis://host?no_such_option=1",
        "unix://",
        "redis://host:99999999",
    ],
)
def test_bad_urls(url: str) -> None:
    """What is wrong with a URL is told at once."""
    with pytest.raises(BadURL):
        open_store(url)


@pytest.mark.parametrize(
    "options",
    [
        {"namespace": "a{b}"},
        {"namespace": ""},
        {"wait_replicas": -1},
        {"wait_replicas": 1, "wait_s": 60},
        {"wait_replicas": "many"},
        {"tombstone_s": 1},
        {"socket_timeout": "soon"},
    ],
)
def test_bad_options(options: dict[str, object]) -> None:
    """What is wrong with an option is told at once."""
    with pytest.raises(BadOption):
        open_store("redis://localhost", **options)


def test_cause_is_the_drivers(server: RedisServer, key: str) -> None:
    """The driver's own error is kept."""
    with client(server.port) as redis:
        redis.rpush(f"holdfast:{{{key}}}", "theirs")
    assert isinstance(trouble(server.url, key).__cause__, RedisError)
