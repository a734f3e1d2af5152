"""Where a Redis is, and how to connect: from a URL, or from a client that exists already.

    redis://[user:password@]host[:port][/db]           rediss:// with TLS; valkey://, valkeys://
    unix:///path/to/socket[?db=N]
    redis+sentinel://[user:password@]host:port,host:port/SERVICE[/db]      rediss+sentinel://
    redis+cluster://[user:password@]host:port,host:port                    rediss+cluster://

redis-py makes the connections: login, TLS, database. What it would do beyond that (retries,
health checks, decoding, maintenance messages) is switched off: see `connection`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import redis
from msgspec import Struct

from holdfast.core.listing import SHORTEST_RETENTION
from holdfast.core.records import SECOND
from holdfast.errors import BadOption, BadURL, Misconfigured, Unsupported
from holdfast.stores.url import StoreURL

Address = tuple[str, int] | str
Kind = Literal["single", "sentinel", "cluster"]

TIMEOUT_S = 5.0
_TIMEOUTS = ("socket_timeout", "socket_connect_timeout")
REDIS_PORT, SENTINEL_PORT = 6379, 26379

# The settings of a redis-py connection that are taken over; the same for both faces.
_SETTINGS = frozenset(
    (
        "username", "password", "credential_provider", "db", "client_name", "socket_timeout",
        "socket_connect_timeout", "socket_keepalive", "socket_keepalive_options", "ssl_keyfile",
        "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_data", "ssl_check_hostname",
        "ssl_min_version", "ssl_ciphers", "ssl_ca_path", "ssl_password", "ssl_include_verify_flags",
        "ssl_exclude_verify_flags",
    )
)  # fmt: skip
_NUMBERS = {"db": int, "socket_timeout": float, "socket_connect_timeout": float}
_SWITCHES = ("socket_keepalive", "ssl_check_hostname")
# What redis-py tells the server about itself. Left alone, it goes through the list of all installed
# packages for its own version. Before 7.2 it has done that by now, and cannot be told.
_DRIVER: dict[str, Any] = (
    {"driver_info": redis.DriverInfo(lib_version=redis.__version__)}
    if hasattr(redis, "DriverInfo")
    else {}
)


class Settings(Struct, frozen=True):
    """How to connect, wherever to."""

    tls: bool = False
    options: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Settings(tls={self.tls})"  # the options have a password

    @property
    def timeout_s(self) -> float:
        """How long an answer may take."""
        return float(self.options["socket_timeout"])

    def connection(
        self, module: Any, retry: Any, address: Address, at_most_s: float | None = None
    ) -> Any:
        """A connection of redis-py's, blocking or asyncio, not yet connected. `at_most_s` bounds
        its time-outs."""
        options = {
            **self.options,
            "protocol": 2,
            "retry": retry,
            "decode_responses": False,
            "health_check_interval": 0,
            **_DRIVER,
        }
        if at_most_s is not None:
            for name in _TIMEOUTS:
                options[name] = min(float(options[name]), at_most_s)
        if isinstance(address, str):
            return module.UnixDomainSocketConnection(path=address, **options)
        kind = module.SSLConnection if self.tls else module.Connection
        try:
            return kind(host=address[0], port=address[1], **options)
        except TypeError as exc:  # older releases do not know all options on both faces
            raise Misconfigured(
                f"redis-py {redis.__version__} cannot connect with these options ({exc}): a later "
                f"release may."
            ) from exc


class Topology(Struct, frozen=True):
    """One server, or several that belong together."""

    kind: Kind
    addresses: tuple[Address, ...]
    settings: Settings
    service: str = ""
    sentinel_settings: Settings = Settings()


def settings_from(options: Mapping[str, Any], tls: bool) -> Settings:
    """What can be used of a connection's options, with timeouts where there are none."""
    known = {name: value for name, value in options.items() if name in _SETTINGS}
    if not tls:
        known = {name: value for name, value in known.items() if not name.startswith("ssl_")}
    for name in _TIMEOUTS:
        if known.get(name) is None:
            known[name] = TIMEOUT_S
    return Settings(tls, {name: value for name, value in known.items() if value is not None})


# --- from a URL -----------------------------------------------------------------------------


def topology_from_url(url: StoreURL, options: dict[str, Any]) -> Topology:
    """The topology that a URL names. Takes what belongs to it out of the options."""
    secure, kind = _SCHEMES[url.scheme]
    found: dict[str, Any] = {**url.options, **options}
    sentinel = {
        name: found.pop(f"sentinel_{name}")
        for name in ("username", "password")
        if f"sentinel_{name}" in found
    }
    mine = {name: _value(name, found.pop(name)) for name in list(found) if name in _SETTINGS}
    options.clear()
    options.update(found)
    mine.setdefault("username", url.user or None)
    mine.setdefault("password", url.password)
    service = _read_path(url, kind, mine)
    addresses = _addresses(url, kind)
    timeouts = {name: value for name, value in mine.items() if name.startswith(("socket_", "ssl_"))}
    return Topology(
        kind,
        addresses,
        settings_from(mine, secure),
        service,
        settings_from({**timeouts, **sentinel}, secure),
    )


_SCHEMES: dict[str, tuple[bool, Kind]] = {
    "redis": (False, "single"),
    "rediss": (True, "single"),
    "valkey": (False, "single"),
    "valkeys": (True, "single"),
    "unix": (False, "single"),
    "redis+sentinel": (False, "sentinel"),
    "rediss+sentinel": (True, "sentinel"),
    "redis+cluster": (False, "cluster"),
    "rediss+cluster": (True, "cluster"),
}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, str) and name in _SWITCHES:
        return _yes(value)
    if name not in _NUMBERS or not isinstance(value, str):
        return value
    try:
        return _NUMBERS[name](value)
    except ValueError:
        raise BadOption(f"{name} is a number, not {value!r}.") from None


def _yes(text: str) -> bool:
    return text.lower() not in ("0", "false", "no")


def _read_path(url: StoreURL, kind: Kind, settings: dict[str, Any]) -> str:
    """The service and the database in a URL's path."""
    if url.scheme == "unix":
        return ""
    parts = [part for part in url.path.split("/") if part]
    service = parts.pop(0) if kind == "sentinel" and parts else ""
    if kind == "sentinel" and not service:
        raise BadURL("A Sentinel URL names a service: redis+sentinel://host:26379/SERVICE")
    if len(parts) > 1 or any(not part.isdecimal() for part in parts):
        raise BadURL("The path of a Redis URL is the number of its database: redis://host/0")
    if parts:
        settings.setdefault("db", int(parts[0]))
    if kind == "cluster" and settings.get("db"):
        raise BadURL("A Redis Cluster has only the database 0.")
    return service


def _addresses(url: StoreURL, kind: Kind) -> tuple[Address, ...]:
    if url.scheme == "unix":
        if not url.path:
            raise BadURL("A unix: URL names a socket: unix:///path/to/redis.sock")
        return (url.path,)
    default = SENTINEL_PORT if kind == "sentinel" else REDIS_PORT
    if "," not in url.host:
        return ((url.host or "localhost", url.port or default),)
    if kind == "single":
        raise BadURL(
            "Several hosts need the scheme of a Sentinel or a cluster: redis+sentinel://, "
            "redis+cluster://"
        )
    return tuple(_address(text, default) for text in url.host.split(",") if text)


def _address(text: str, default: int) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(default)
    if not port.isdecimal():
        raise BadURL(f"{port!r} is not a port.")
    return host.strip("[]"), int(port)


# --- from a client that exists --------------------------------------------------------------


def topology_from_client(client: Any) -> Topology:
    """The same servers, login and timeouts as those of a redis-py client of either face."""
    if hasattr(client, "nodes_manager"):
        return _topology_of_cluster(client)
    pool = getattr(client, "connection_pool", client)
    if not hasattr(pool, "connection_kwargs"):
        raise Unsupported(f"A {type(client).__name__} is not a Redis client that Holdfast knows.")
    options, kind = pool.connection_kwargs, pool.connection_class
    tls = _is(kind, "SSLConnection")
    if hasattr(pool, "sentinel_manager"):
        return _topology_of_sentinel(pool, options, tls)
    address = options["path"] if "path" in options else _host(options)
    return Topology("single", (address,), settings_from(options, tls))


def _topology_of_cluster(client: Any) -> Topology:
    manager = client.nodes_manager
    options = manager.connection_kwargs
    nodes = {**manager.startup_nodes, **getattr(manager, "nodes_cache", {})}
    tls = bool(options.get("ssl")) or _is(options.get("connection_class"), "SSLConnection")
    addresses = tuple((str(node.host), int(node.port)) for node in nodes.values())
    return Topology("cluster", addresses, settings_from(options, tls))


def _topology_of_sentinel(pool: Any, options: Mapping[str, Any], tls: bool) -> Topology:
    sentinels = [client.connection_pool for client in pool.sentinel_manager.sentinels]
    first = sentinels[0]
    return Topology(
        "sentinel",
        tuple(_host(sentinel.connection_kwargs) for sentinel in sentinels),
        settings_from(options, tls),
        pool.service_name,
        settings_from(first.connection_kwargs, _is(first.connection_class, "SSLConnection")),
    )


def _host(options: Mapping[str, Any]) -> Address:
    return str(options.get("host", "localhost")), int(options.get("port", REDIS_PORT))


def _is(kind: Any, name: str) -> bool:
    """Whether this is a class of that name, of redis-py's blocking or asyncio face."""
    return any(name in base.__name__ for base in getattr(kind, "__mro__", ()))


def shown(address: Address) -> str:
    """An address, for messages."""
    return address if isinstance(address, str) else f"{address[0]}:{address[1]}"


# --- the store's own options ---------------------------------------------------------------------

_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "namespace": str,
    "wait_replicas": int,
    "wait_s": float,
    "tombstone_s": float,
    "fast_paths": lambda value: _yes(str(value)),
}


def store_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of the store itself, in their types."""
    unknown = options.keys() - _OPTIONS.keys()
    if unknown:
        raise BadURL(f"The redis store has no option {', '.join(sorted(unknown))}.")
    try:
        return {name: _OPTIONS[name](value) for name, value in options.items()}
    except (TypeError, ValueError):
        raise BadOption("wait_replicas, wait_s and tombstone_s are numbers.") from None


def check_options(
    namespace: str, replicas: int, wait_s: float, tombstone_s: float, timeout_s: float
) -> None:
    """Refuse options that make no sense."""
    if not namespace or any(char in "{}" or char.isspace() for char in namespace):
        raise BadOption("namespace is what all keys start with: no braces, no blanks.")
    if replicas < 0:
        raise BadOption("wait_replicas is how many replicas must confirm a grant: 0 or more.")
    if replicas and not 0 < wait_s < timeout_s:
        raise BadOption(f"wait_s is above 0 and below socket_timeout ({timeout_s:g} s).")
    if tombstone_s * SECOND < SHORTEST_RETENTION:
        raise BadOption(f"tombstone_s is at least {SHORTEST_RETENTION / SECOND:g} s.")
