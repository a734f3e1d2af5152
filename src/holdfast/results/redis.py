"""Results in Redis, which drops them by itself when their time is over."""

from __future__ import annotations

from typing import Any

from holdfast.api.options import Seconds
from holdfast.fencing import redis as fenced
from holdfast.fencing.gate import Fenced
from holdfast.fencing.redis.requests import PREFIX as GATES
from holdfast.fencing.redis.requests import gate_name
from holdfast.results.base import Codec, Found, Results, codec_of, seconds_of


class RedisResults(Results):
    """Keeps results in Redis, under `PREFIX{key}`.

    client  a blocking client of redis-py's: for one server, from Sentinel, or for a cluster
    prefix  what the names in Redis begin with
    ttl     how long a result is good; None: for ever
    codec   `json`, `bytes`, or a `Codec` of your own
    """

    def __init__(
        self,
        client: Any,
        *,
        prefix: str = "holdfast:result:",
        ttl: Seconds | None = None,
        codec: str | Codec = "json",
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._ttl_s = seconds_of(ttl)
        self._codec = codec_of(codec)

    def _name(self, key: str) -> str:
        """Returns the name of a result, in the slot of its gate."""
        return self._prefix + gate_name(key).removeprefix(GATES)

    def find(self, key: str) -> Found | None:
        raw = self._client.get(self._name(key))
        if raw is None:
            return None
        return Found(self._codec.decode(raw if isinstance(raw, bytes) else raw.encode()))

    def publish(self, key: str, value: Any, lease: Fenced) -> None:
        lasts_ms = None if self._ttl_s is None else max(1, round(self._ttl_s * 1000))
        with fenced.pipeline(self._client, lease, key=key) as pipeline:
            pipeline.set(self._name(key), self._codec.encode(value), px=lasts_ms)
