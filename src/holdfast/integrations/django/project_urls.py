"""The URL of a database or a cache that the project has.

Locks have connections of their own: a lock must be seen by others at once, and a connection of
Django's may be in the middle of a transaction. So what Django is told about a server is told to
the store in its own words. What cannot be told raises; nothing about security is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

from django.conf import settings
from django.core.cache import caches
from django.db import connections

from holdfast.integrations.django.settings import SETTING, BadSettings, with_query
from holdfast.stores.url import parse

# OPTIONS of a database that say how Django works with a connection, not how to get one.
HOW_DJANGO_WORKS = {
    "postgresql": {
        "client_encoding", "cursor_factory", "isolation_level", "pool", "prepare_threshold",
        "server_side_binding",
    },
    "mysql": {"charset", "init_command", "isolation_level", "sql_mode", "use_unicode"},
}  # fmt: skip
MYSQL_OPTIONS = {"connect_timeout", "read_default_file", "read_default_group", "unix_socket"}
MYSQL_TLS = {"ca", "capath", "cert", "cipher", "key", "check_hostname"}
# OPTIONS of a Redis cache that say how to connect; django-redis has some of them in capitals.
REDIS_OPTIONS = {
    "username", "password", "db", "client_name", "socket_timeout", "socket_connect_timeout",
    "socket_keepalive", "ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs",
    "ssl_ca_data", "ssl_check_hostname", "ssl_ca_path", "ssl_password",
}  # fmt: skip
REDIS_CACHES = ("django.core.cache.backends.redis", "django_redis.cache")
# How these say that there is more than one server, or a way to log in that no URL can say.
NOT_ONE_SERVER = {"SENTINELS", "credential_provider", "connection_class"}
LOCKS_FILE = ".locks"  # beside the file of an SQLite database


def of_database(alias: str) -> str:
    """Returns the URL of the store in a database of the project."""
    if alias not in connections:
        known = ", ".join(map(repr, connections)) or "none"
        raise BadSettings(f"{SETTING} names the database {alias!r}, and DATABASES has {known}.")
    database = connections[alias]
    make = {"postgresql": _postgresql, "mysql": _mysql, "sqlite": _sqlite}.get(database.vendor)
    if make is None:
        _cannot(f"Holdfast keeps no locks in {database.vendor}")
    return make(alias, database.settings_dict)


def _postgresql(alias: str, given: dict[str, Any]) -> str:
    options = _told(given, "postgresql")
    for name, value in options.items():
        if name == "assume_role" or not isinstance(value, (str, int, float)):
            _cannot_take(alias, name)
    return _server("postgresql", given, options)


def _mysql(alias: str, given: dict[str, Any]) -> str:
    options = _told(given, "mysql")
    tls = options.pop("ssl", None) or {}
    for name in [*(options.keys() - MYSQL_OPTIONS), *(tls.keys() - MYSQL_TLS)]:
        _cannot_take(alias, name)
    return _server("mysql", given, options | {f"ssl_{name}": tls[name] for name in tls})


def _told(given: dict[str, Any], vendor: str) -> dict[str, Any]:
    names = given["OPTIONS"].keys() - HOW_DJANGO_WORKS[vendor]
    return {name: given["OPTIONS"][name] for name in sorted(names)}


def _server(scheme: str, given: dict[str, Any], options: dict[str, Any]) -> str:
    name, user, password, host, port = (
        str(given[part] or "") for part in ("NAME", "USER", "PASSWORD", "HOST", "PORT")
    )
    if host.startswith("/") and scheme == "mysql":  # a Unix socket
        options, host, port = {"unix_socket": host, **options}, "", ""
    elif host.startswith("/"):  # the folder of one
        where = {"host": host, "port": port} if port else {"host": host}
        options, host, port = where | options, "", ""
    elif ":" in host:
        host = f"[{host}]"
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    address = f"{login}{'@' if login else ''}{host}{':' if port else ''}{port}"
    return with_query(f"{scheme}://{address}/{quote(name, safe='')}", options)


def _sqlite(alias: str, given: dict[str, Any]) -> str:
    name = str(given["NAME"])
    if name == ":memory:" or "mode=memory" in name:  # as in tests; no other process sees it
        return f"memory://django-{alias}"
    if name.startswith("file:"):
        _cannot(f"Holdfast cannot take over DATABASES[{alias!r}]['NAME'], which is a URI")
    # A file of their own: SQLite lets only one party write to a file at a time.
    return f"sqlite://{quote(str(Path(name).absolute()))}{LOCKS_FILE}"


def of_cache(alias: str) -> str:
    """Returns the URL of the Redis behind a cache of the project."""
    if alias not in settings.CACHES:
        known = ", ".join(map(repr, settings.CACHES))
        raise BadSettings(f"{SETTING} names the cache {alias!r}, and CACHES has {known}.")
    if not any(base.__module__ in REDIS_CACHES for base in type(caches[alias]).__mro__):
        _cannot(f"The cache {alias!r} is not in Redis, and only a Redis cache can keep locks")
    given = settings.CACHES[alias]
    server, options = given.get("LOCATION") or "", given.get("OPTIONS", {})
    if isinstance(server, str):
        server = server.replace(";", ",").split(",")
    if not server or NOT_ONE_SERVER & options.keys():
        _cannot(f"Holdfast cannot take over the servers of the cache {alias!r}")
    return _redis(server[0], options)  # which is the one that is written to


def _redis(url: str, given: dict[str, Any]) -> str:
    lowered = {name.lower(): value for name, value in given.items()}
    options = lowered | lowered.get("connection_pool_kwargs", {})
    said = parse(url)  # redis-py has it that the URL counts, if both say something
    db = "" if said.scheme == "unix" else said.path.strip("/")
    in_url = {"username": said.user, "password": said.password, "db": db, **said.options}
    names = REDIS_OPTIONS & options.keys() - {name for name in in_url if in_url[name]}
    return with_query(url, {name: options[name] for name in sorted(names)})


def _cannot_take(alias: str, name: str) -> NoReturn:
    _cannot(f"Holdfast cannot take over the option {name!r} of DATABASES[{alias!r}]")


def _cannot(what: str) -> NoReturn:
    raise BadSettings(f'{what}: name the store by its URL, {SETTING} = {{"url": "…"}}.')
