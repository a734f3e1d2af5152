"""A short job under a lock: `holdfast run` imports no more than its store needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisServer
from tests.engines.shared import shared

# Each takes from a few milliseconds to a quarter of a second.
HEAVY = {
    "asyncio", "boto3", "concurrent", "email", "email.parser", "http", "importlib.metadata", "json",
    "obstore", "opentelemetry", "prometheus_client", "psycopg", "pymysql", "redis", "rich",
    "sqlalchemy", "ssl", "tempfile", "xml", "zipfile",
}  # fmt: skip
# What the drivers import by themselves.
OF_REDIS = {
    "redis", "asyncio", "concurrent", "email", "http", "importlib.metadata", "json",
    "opentelemetry", "ssl", "tempfile", "zipfile",
}  # fmt: skip
# It reads the list of installed packages for its own version, unless it is told.
if not hasattr(redis, "DriverInfo"):
    OF_REDIS.add("email.parser")
OF_PSYCOPG = {"psycopg", "asyncio", "concurrent", "email", "importlib.metadata", "json", "ssl"} | {
    "email.parser", "tempfile", "zipfile",
}  # fmt: skip


def imported(url: str) -> set[str]:
    """The modules that `holdfast run k -- true` imports."""
    command = [sys.executable, "-X", "importtime", "-m", "holdfast", "run", "k", "--", "true"]
    ran = subprocess.run(
        command, env={**os.environ, "HOLDFAST_URL": url}, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    lines = [line for line in ran.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.parametrize("store", ["sqlite", "redis", "postgresql"])
def test_imports(store: str, tmp_path: Path) -> None:
    """Nothing heavy but the driver. SQLAlchemy alone took half of the time on PostgreSQL."""
    if store == "sqlite":
        url, needed = f"sqlite://{tmp_path}/locks.db", set[str]()
    elif store == "redis":
        url, needed = shared(RedisServer).url, OF_REDIS
    else:
        url, needed = shared(PostgreSQL).url(), OF_PSYCOPG
    modules = imported(url)
    assert "holdfast.stores.base" in modules
    heavy = {name for name in HEAVY if name in modules}
    assert heavy - needed == set()
