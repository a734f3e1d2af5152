"""Servers that run already, named by HOLDFAST_TEST_URLS: versions that we cannot start ourselves.

Without the variable there are none, and nothing is left out: all stores are tested on servers that
the tests start themselves. Each case has keys of its own, so a server that others use is not
harmed; the records of these keys stay in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from redis import Redis

from holdfast.stores.base import Store
from holdfast.stores.redis.record_text import Names
from holdfast.stores.registry import ALIASES, open_store
from holdfast.testing.conformance import Target
from tests.conformance.sql_targets import SQLTarget

VARIABLE = "HOLDFAST_TEST_URLS"
DRIVERS = {"mysql": "mysql+pymysql", "postgresql": "postgresql+psycopg"}


class GivenRedis(Target):
    """A Redis or Valkey at a URL."""

    def __init__(self, url: str) -> None:
        self._url = url

    def open(self) -> Store:
        return open_store(self._url)

    def overwrite(self, key: str, text: str) -> None:
        with Redis.from_url(self._url.replace("valkey", "redis", 1)) as redis:
            redis.set(Names("holdfast").record(key), text)


def target_at(url: str) -> Target:
    """The store at a URL, as a target of the conformance cases."""
    scheme = urlsplit(url).scheme
    store = ALIASES.get(scheme, scheme)
    if store in DRIVERS:
        return SQLTarget(url, url.replace(scheme, DRIVERS[store], 1))
    if store == "redis":
        return GivenRedis(url)
    raise ValueError(f"{VARIABLE} can name MySQL, MariaDB, PostgreSQL, Redis and Valkey, not {url}")


def given_targets(
    environment: Mapping[str, str] = os.environ,
) -> dict[str, Callable[[Path], Target]]:
    """One target for each URL of the variable, in which spaces separate them."""
    urls = environment.get(VARIABLE, "").split()
    return {
        f"given {place}: {urlsplit(url).scheme}": partial(_made, url)
        for place, url in enumerate(urls, 1)
    }


def _made(url: str, folder: Path) -> Target:
    return target_at(url)
