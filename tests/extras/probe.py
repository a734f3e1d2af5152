"""Tries everything that needs an extra, and prints what came of it, as JSON.

This file runs by itself in an environment that has Holdfast's wheel and one extra: it imports
nothing of the tests. Stores are at the URLs in HOLDFAST_PROBE_REDIS and so on; by default nobody
listens there, and it is enough that the driver says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib import import_module
from io import StringIO
from typing import Any, NamedTuple

import holdfast
from holdfast import aio

WORKS = "works"
NO_SERVER = "no server"
OPTIONS: dict[str, Any] = {"request_timeout": 30, "store_patience": 0}


class Feature(NamedTuple):
    """Something that needs an extra."""

    name: str
    extras: tuple[str, ...]  # any one of these will do; the first is the one that errors name
    attempt: Callable[[], str]


def _locks_at(url: str) -> Callable[[], str]:
    """Returns what takes a lock there with both faces."""
    scheme = url.partition(":")[0]

    def attempt() -> str:
        there = os.environ.get(f"HOLDFAST_PROBE_{scheme.upper()}", url)
        try:
            with holdfast.connect(there, **OPTIONS) as locks:
                locks.acquire("blocking", timeout=60).release()
            asyncio.run(_awaited(there))
        except (holdfast.Unavailable, holdfast.OutcomeUnknown):
            return NO_SERVER
        return WORKS

    return attempt


async def _awaited(url: str) -> None:
    async with aio.connect(url, **OPTIONS) as locks, locks.acquire("asyncio", timeout=60):
        pass


def _imported(module: str, name: str = "") -> Callable[[], str]:
    def attempt() -> str:
        found = import_module(module)
        if name:
            getattr(found, name)
        return WORKS

    return attempt


def _command(*args: str, says: str) -> Callable[[], str]:
    """Returns what runs a command line that works if it comes as far as saying this."""

    def attempt() -> str:
        from holdfast.cli.app import call

        told = StringIO()
        with redirect_stderr(told):
            call(["--url", "memory://", *args])
        return WORKS if says in told.getvalue() else told.getvalue()

    return attempt


POSTGRES = ("postgres", "postgresql", "sql")
SQL = ("sql", "postgres", "postgresql", "mysql")
FEATURES = (
    Feature("store in memory", (), _locks_at("memory://")),
    Feature("store in a file", (), _locks_at(f"sqlite://{tempfile.gettempdir()}/probe.db")),
    Feature("store in Redis", ("redis",), _locks_at("redis://127.0.0.1:1")),
    Feature("store in PostgreSQL", POSTGRES, _locks_at("postgresql://u@127.0.0.1:1/d")),
    Feature("store in MySQL", ("mysql", "sql"), _locks_at("mysql://u@127.0.0.1:1/d")),
    Feature(
        "store in DynamoDB",
        ("dynamodb",),
        _locks_at("dynamodb://probe?endpoint_url=http://127.0.0.1:1&region=local"),
    ),
    Feature(
        "store in S3",
        ("blob",),
        _locks_at(
            "s3://b?endpoint=http://127.0.0.1:1&region=local&access_key_id=a&secret_access_key=b"
        ),
    ),
    Feature("redis-py's lock", ("redis",), _imported("holdfast.dropin.redis_lock")),
    Feature("the same, awaited", ("redis",), _imported("holdfast.dropin.redis_lock.asyncio")),
    Feature("fenced Redis", ("redis",), _imported("holdfast.fencing.redis.aio")),
    Feature("results in Redis", ("redis",), _imported("holdfast.results", "RedisResults")),
    Feature("results in SQL", SQL, _imported("holdfast.results", "SQLResults")),
    Feature("ResourceLocker", SQL, _imported("holdfast.dropin.resource_lock")),
    Feature("DynamoDBLock", ("dynamodb",), _imported("holdfast.dropin.dynamodb_lock")),
    Feature(
        "python-dynamodb-lock", ("dynamodb",), _imported("holdfast.dropin.python_dynamodb_lock")
    ),
    Feature("fenced objects", ("blob",), _imported("holdfast.fencing.blob.aio")),
    Feature("results in buckets", ("blob",), _imported("holdfast.results", "BlobResults")),
    Feature("Celery", ("celery",), _imported("holdfast.integrations.celery")),
    Feature("Django", ("django",), _imported("holdfast.integrations.django")),
    Feature("dogpile.cache", ("dogpile",), _imported("holdfast.integrations.dogpile")),
    Feature("FastAPI", ("fastapi",), _imported("holdfast.integrations.fastapi")),
    Feature("tooz", ("tooz",), _imported("holdfast.integrations.tooz")),
    Feature("metrics", ("prometheus",), _imported("holdfast.observe.prometheus")),
    Feature(
        "metrics of a run",
        ("prometheus",),
        _command(
            "run", "k", "--metrics", "no port", "--", "true", says="is neither a port nor HOST:PORT"
        ),
    ),
    Feature("traces", ("otel",), _imported("holdfast.observe.otel")),
    Feature(
        "the live page",
        ("ui",),
        _command("ui", "--host", "0.0.0.0", says="host under which browsers"),
    ),
)


def tried(feature: Feature) -> str:
    """Returns what came of it: that it works, or the error."""
    try:
        return feature.attempt()
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"


if __name__ == "__main__":
    json.dump({feature.name: tried(feature) for feature in FEATURES}, sys.stdout)
