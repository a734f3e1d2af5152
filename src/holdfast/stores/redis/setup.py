"""What a Redis store promises, and whether a server will do."""

from __future__ import annotations

import logging
import re

from msgspec.structs import replace

from holdfast.core.contract import Facts
from holdfast.errors import Misconfigured
from holdfast.stores.redis.errors import OLDEST

logger = logging.getLogger("holdfast")

FACTS = Facts(
    name="redis",
    linearizable=True,
    clock="store",
    reach="network",
    wakeup="push",
    durable=False,
    native_async=True,
    scripted=True,
    batch=256,
    caveats=(
        "A restart forgets what Redis had not yet saved: see appendonly and appendfsync.",
        "maxmemory-policy must be noeviction, or Redis may drop a lock that is held.",
        "Its clock is the machine's time of day: a step forward ends leases early.",
    ),
)
REPLICATED = replace(
    FACTS,
    linearizable=False,
    caveats=(
        "Replication is asynchronous: a failover can forget a grant that was acknowledged, and "
        "then two parties hold; the fence tells them apart. wait_replicas narrows the gap.",
        *FACTS.caveats,
    ),
)


def check_server(info: bytes) -> None:
    """Refuse a server that is too old; warn of one that may drop locks."""
    facts = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
    version = facts.get(b"redis_version", b"").decode()
    if version and _parts(version) < _parts(OLDEST):
        raise Misconfigured(f"This Redis is {version}: Holdfast needs {OLDEST} or later.")
    policy = facts.get(b"maxmemory_policy", b"noeviction").decode()
    if policy != "noeviction" and facts.get(b"maxmemory") != b"0":
        logger.warning(
            "This Redis drops keys when memory is short (maxmemory-policy %s), held locks too: "
            "set it to noeviction",
            policy,
        )


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:2]]
