"""From the settings of a project to the store of its locks."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

import holdfast
from holdfast.integrations.django import BadSettings, locks
from holdfast.integrations.django import project_urls as urls
from holdfast.integrations.django.settings import place
from holdfast.stores.sql.connect import arguments_for, url_and_options
from holdfast.stores.url import parse
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisServer
from tests.engines.shared import shared
from tests.helpers import unique
from tests.test_tracebacks import shown

SECRET = "s3cr@t/:?#%"
DJANGOS = "django.core.cache.backends.redis.RedisCache"
DJANGO_REDIS = "django_redis.cache.RedisCache"


def database(monkeypatch: pytest.MonkeyPatch, engine: str, **given: Any) -> str:
    """Tell Django of a database. Returns its alias."""
    alias = unique()
    known = {**connections.settings, alias: {"ENGINE": f"django.db.backends.{engine}", **given}}
    monkeypatch.setattr(connections, "settings", connections.configure_settings(known))
    return alias


def test_a_database_with_a_password(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The locks of a project in PostgreSQL are those of the same database by its URL; the
    password may have any characters, and is not shown."""
    server, user = shared(PostgreSQL), f"shop_{unique()}"
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{SECRET}'")
        admin.execute(f"CREATE SCHEMA AUTHORIZATION {user}")
    alias = database(
        monkeypatch, "postgresql", NAME="postgres", USER=user, PASSWORD=SECRET, HOST="127.0.0.1",
        PORT=server.port, OPTIONS={"sslmode": "disable", "isolation_level": 1},
    )  # fmt: skip
    change(HOLDFAST={"database": alias, "schema": user, "ttl": 77})
    with locks.acquire("k") as lease:
        assert 70 < lease.remaining() < 78
        with holdfast.connect(server.url(), schema=user) as others:
            assert others.try_acquire("k") is None
    assert SECRET not in f"{place()!r} {locks!r} {locks()!r}"  # type: ignore[operator]


@pytest.mark.parametrize("backend", [DJANGOS, DJANGO_REDIS])
def test_a_cache(change: Any, backend: str) -> None:
    """The locks are in the Redis of the cache, in the database that `db` says."""
    server = shared(RedisServer)
    url, key = f"redis://127.0.0.1:{server.port}", unique()
    change(CACHES={"default": {"BACKEND": backend, "LOCATION": [url, "redis://replica"]}})
    change(HOLDFAST={"cache": "default", "db": 5})
    with locks.acquire(key), holdfast.connect(f"{url}/5") as others:
        assert others.try_acquire(key) is None


def test_an_sqlite_database(change: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The locks have a file beside it; those of a database in memory are in memory, too."""
    alias = database(monkeypatch, "sqlite3", NAME=tmp_path / "db.sqlite3")
    change(HOLDFAST={"database": alias})
    with locks.acquire("k"):
        assert (tmp_path / "db.sqlite3.locks").exists()
    change(HOLDFAST={"database": database(monkeypatch, "sqlite3", NAME=":memory:")})
    assert locks.facts.name == "memory"


PLAIN = {"NAME": "shop", "USER": "", "PASSWORD": "", "HOST": "", "PORT": "", "OPTIONS": {}}


@pytest.mark.parametrize(
    ("make", "given", "told"),
    [
        ("_postgresql", {}, {"dbname": "shop"}),
        ("_postgresql", {"HOST": "db", "PORT": 5433}, {"host": "db", "port": 5433}),
        (
            "_postgresql",
            {"HOST": "::1", "USER": "a@b", "PASSWORD": SECRET},
            {"host": "::1", "user": "a@b", "password": SECRET},
        ),
        (
            "_postgresql",
            {"HOST": "/run/pg", "PORT": "5433", "OPTIONS": {"sslmode": "require", "pool": True}},
            {"host": "/run/pg", "port": "5433", "sslmode": "require", "pool": None},
        ),
        (
            "_mysql",
            {"HOST": "/run/sock", "USER": "me", "PASSWORD": SECRET},
            {"unix_socket": "/run/sock", "user": "me", "password": SECRET, "database": "shop"},
        ),
        (
            "_mysql",
            {"HOST": "db", "OPTIONS": {"connect_timeout": 7, "charset": "utf8"}},
            {"host": "db", "connect_timeout": 7, "charset": "utf8mb4"},
        ),
    ],
)
def test_what_a_driver_is_told(make: str, given: dict[str, Any], told: dict[str, Any]) -> None:
    """About a server, it is the same as Django was told."""
    url = getattr(urls, make)("default", {**PLAIN, **given})
    arguments = arguments_for(*url_and_options(parse(url), {}), "blocking")
    assert {name: arguments.get(name) for name in told} == told


def test_tls_of_mysql() -> None:
    """In the words of a URL."""
    options = {"ssl": {"ca": "/ca", "check_hostname": False}}
    url = urls._mysql("default", {**PLAIN, "HOST": "db", "OPTIONS": options})
    assert url == "mysql://db/shop?ssl_ca=%2Fca&ssl_check_hostname=no"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"password": "x", "socket_timeout": 2}, "redis://h/1?password=x&socket_timeout=2"),
        ({"PASSWORD": "x", "db": 4, "serializer": "y"}, "redis://h/1?password=x"),
        (
            {"CONNECTION_POOL_KWARGS": {"ssl_check_hostname": False, "max_connections": 9}},
            "redis://h/1?ssl_check_hostname=no",
        ),
    ],
)
def test_the_url_of_a_cache(given: dict[str, Any], url: str) -> None:
    """What its options say about the connection; what its URL says already counts."""
    assert urls._redis("redis://h/1", given) == url


def test_the_socket_of_a_cache() -> None:
    """The path of its URL is no database."""
    assert urls._redis("unix:///s", {"db": 4}) == "unix:///s?db=4"
    assert urls._redis("unix:///s?db=1", {"db": 4}) == "unix:///s?db=1"


OTHER_CACHE = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
SENTINEL = {
    "BACKEND": DJANGO_REDIS,
    "LOCATION": "redis://m/0",
    "OPTIONS": {"SENTINELS": [("h", 1)]},
}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "Say where the locks are: HOLDFAST = "),
        ("redis://h", "HOLDFAST is a dict"),
        ({"url": "redis://h", "cache": "default"}, "names url and cache: keep one"),
        ({"url": ""}, "a text that is not empty"),
        ({"url": f"reddis://:{SECRET}@h"}, "There is no store for reddis: URLs"),
        ({"url": "memory://x", "tll": 5}, "tll"),
        ({"url": "memory://x", "ttl": "long"}, "ttl"),
        ({"url": "memory://x", "sinks": 5}, "settings.HOLDFAST"),
        ({"database": "other"}, "names the database 'other', and DATABASES has"),
        ({"cache": "other"}, "names the cache 'other', and CACHES has 'default', 'm'"),
        ({"cache": "default"}, "is not in Redis.*name the store by its URL"),
        ({"cache": "m"}, "the servers of the cache 'm'.*name the store by its URL"),
    ],
)
def test_settings_that_cannot_work(
    change: Any, monkeypatch: pytest.MonkeyPatch, given: Any, says: str
) -> None:
    """The error is Django's and Holdfast's, and says what to do."""
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    change(CACHES={"default": OTHER_CACHE, "m": SENTINEL}, HOLDFAST=given)
    with pytest.raises(BadSettings, match=says) as raised:
        locks.show("k")
    assert isinstance(raised.value, ImproperlyConfigured)
    assert SECRET not in shown(raised.value).replace(f"{given!r}", "")


@pytest.mark.parametrize(
    ("engine", "options"),
    [("postgresql", {"assume_role": "r"}), ("postgresql", {"x": object()})],
)
def test_what_cannot_be_taken_over(
    change: Any, monkeypatch: pytest.MonkeyPatch, engine: str, options: dict[str, Any]
) -> None:
    """Nothing that a database asks for is left out silently."""
    alias = database(monkeypatch, engine, NAME="shop", PASSWORD=SECRET, OPTIONS=options)
    change(HOLDFAST={"database": alias, "ttl": 5})
    with pytest.raises(BadSettings, match=f"the option '{next(iter(options))}'") as raised:
        locks.show("k")
    assert SECRET not in shown(raised.value)
    with pytest.raises(BadSettings, match="'ssl_mode'"):
        urls._mysql("default", {**PLAIN, "OPTIONS": {"ssl_mode": "REQUIRED"}})


def test_the_environment(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a place in the settings, $HOLDFAST_URL is it, with the options of the settings."""
    url = f"memory://{unique()}"
    monkeypatch.setenv("HOLDFAST_URL", url)
    change(HOLDFAST={"ttl": 77})
    with locks.acquire("k") as lease, holdfast.connect(url) as others:
        assert lease.remaining() > 70
        assert others.try_acquire("k") is None


def test_a_url_for_other_programs(change: Any) -> None:
    """It has the options of the store, but not those of the client."""
    change(HOLDFAST={"url": "redis://h/1?namespace=a", "fast_paths": False, "ttl": 60})
    assert place().full_url == "redis://h/1?namespace=a&fast_paths=no"
