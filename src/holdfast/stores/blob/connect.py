"""From a URL, or a store of obstore's, to a bucket and its settings."""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore, S3Store

from holdfast.core.records import SECOND
from holdfast.errors import BadOption, BadURL, Misconfigured, MissingDriver
from holdfast.stores.blob.bucket import Bucket
from holdfast.stores.blob.names import check_prefix
from holdfast.stores.blob.service_clock import Precision
from holdfast.stores.shortage import has_room_for, shortage
from holdfast.stores.url import redact

if TYPE_CHECKING:
    from holdfast.stores.url import StoreURL

Protocol = Literal["conditional", "last-writer"]
TIMEOUT_S = 10.0
# How far the clocks of a service's machines may differ. No service promises a figure; the clocks of
# the large services differ by a small part of this.
CLOCK_SKEW_S = 1.0

_BUCKETS: dict[str, tuple[type[Any], str]] = {
    "s3": (S3Store, "s3://bucket/prefix"),
    "az": (AzureStore, "az://container/prefix?account_name=…"),
    "gs": (GCSStore, "gs://bucket/prefix"),
}
_SCHEMES = {"abfs": "az", "abfss": "az", "gcs": "gs", "s3a": "s3"}
_PROVIDERS = {
    "boto3": ("obstore.auth.boto3", "Boto3CredentialProvider"),
    "azure-identity": ("obstore.auth.azure", "AzureCredentialProvider"),
    "google-auth": ("obstore.auth.google", "GoogleCredentialProvider"),
}


class Settings(Struct, frozen=True):
    """Holdfast's own options in a URL; all others are obstore's."""

    protocol: Protocol = "conditional"
    timeout_s: float = TIMEOUT_S
    clock_skew_s: float = CLOCK_SKEW_S
    credentials: str = ""
    prefix: str = ""

    @property
    def precision(self) -> Precision:
        """Returns how precisely the service tells the time."""
        return Precision(skew=round(self.clock_skew_s * SECOND))


def settings_from(given: dict[str, Any]) -> Settings:
    """Take Holdfast's own options out of `given`, and return them."""
    default = Settings()
    protocol = given.pop("protocol", default.protocol)
    if protocol not in ("conditional", "last-writer"):
        raise BadOption(f"protocol is conditional or last-writer, not {protocol!r}.")
    credentials = given.pop("credentials", default.credentials)
    if credentials and credentials not in _PROVIDERS:
        raise BadOption(f"credentials is one of {', '.join(_PROVIDERS)}, not {credentials!r}.")
    return Settings(
        protocol,
        _number(given, "timeout_s", TIMEOUT_S, least=0.1),
        _number(given, "clock_skew_s", CLOCK_SKEW_S, least=0.0),
        credentials,
        check_prefix(given.pop("prefix", default.prefix)),
    )


def _number(given: dict[str, Any], name: str, default: float, least: float) -> float:
    try:
        value = float(given.pop(name, default))
    except (TypeError, ValueError):
        value = -1.0
    if not value >= least:
        raise BadOption(f"{name} is a number of seconds, at least {least:g}.")
    return value


# --- URLs -----------------------------------------------------------------------------------


def open_bucket(url: StoreURL, given: dict[str, Any]) -> tuple[Bucket, Settings]:
    """Returns the bucket that a URL names, opened."""
    scheme = _SCHEMES.get(url.scheme, url.scheme)
    options = {**url.options, **given}
    settings = settings_from(options)
    if scheme == "file":
        return _open_folder(url, settings, options), settings
    kind, example = _BUCKETS[scheme]
    bucket = url.user if scheme == "az" and url.user else _as_written(url)
    if not bucket or url.password or url.port:
        raise BadURL(f"A blob store is named by its bucket, as in {example}")
    if scheme == "az" and url.user:
        options.setdefault("account_name", url.host.partition(".")[0])
    prefix = check_prefix(url.path)
    where = f"{scheme}://{bucket}/{prefix}"
    store = _open_store(kind, bucket, settings, options, where)
    return Bucket(store, prefix, where, by_generation=kind is GCSStore), settings


def _as_written(url: StoreURL) -> str:
    """Returns the bucket's name. `url.host` is lower case, and old buckets on S3 may not be."""
    return urlsplit(url.text).netloc.rpartition("@")[2]


def _open_store(
    kind: type[Any], bucket: str, settings: Settings, options: dict[str, Any], where: str
) -> Any:
    timeout = f"{settings.timeout_s:g}s"
    client = {"timeout": timeout, "connect_timeout": timeout, **options.pop("client_options", {})}
    # obstore does not try again: the core's steps decide that, because they know the deadline.
    retries = options.pop("retry_config", {"max_retries": 0})
    told = {**_environment(kind), **options}
    if _in_the_clear(told) or '"http://' in str(told.get("service_account_key")):
        client.setdefault("allow_http", True)
    if settings.credentials:
        options["credential_provider"] = _provider(settings.credentials)
    try:
        return kind(bucket, client_options=client, retry_config=retries, **options)
    except (BaseError, ValueError, TypeError) as exc:
        if not has_room_for(1):  # it reads the certificates of authorities, or cannot
            raise shortage(where) from exc
        words = redact(str(exc).partition("\n")[0])
        raise BadURL(f"{where} cannot be opened: {words}") from exc


# What the variables begin with that obstore reads.
_VARIABLES = {S3Store: "AWS_", AzureStore: "AZURE_", GCSStore: "GOOGLE_"}


def _environment(kind: type[Any]) -> dict[str, str]:
    """Returns the variables that obstore reads for this kind. It needs our help with one: as we
    give it options for its HTTP client, it does not look for ALLOW_HTTP there."""
    prefix = _VARIABLES[kind]
    found = {name: text for name, text in os.environ.items() if text and name.startswith(prefix)}
    return found | {"service_account_key": found.get("GOOGLE_SERVICE_ACCOUNT_KEY", "")}


# All names that obstore knows for the endpoint of the service.
_ENDPOINT = re.compile(
    r"((aws|azure|azure_storage|google)_)?(endpoint|endpoint_url|base_url)", re.IGNORECASE
)


def _in_the_clear(options: dict[str, Any]) -> bool:
    """Whether the endpoint has no TLS. Refuses one without a scheme, which makes obstore panic."""
    named = {name: str(value) for name, value in options.items() if _ENDPOINT.fullmatch(name)}
    for name, endpoint in named.items():
        if not re.match(r"https?://.", endpoint, re.IGNORECASE):
            raise BadOption(f"{name} is a URL, as in http://127.0.0.1:9000, not {endpoint!r}.")
    return any(endpoint.lower().startswith("http://") for endpoint in named.values())


def _provider(name: str) -> Any:
    module, found = _PROVIDERS[name]
    try:
        return getattr(import_module(module), found)()
    except ImportError as exc:
        raise MissingDriver(f"credentials={name} needs {exc.name}: install it.") from exc
    except Exception as exc:
        raise Misconfigured(f"{name} found no credentials ({type(exc).__name__}).") from exc


def _open_folder(url: StoreURL, settings: Settings, options: dict[str, Any]) -> Bucket:
    if options:
        raise BadURL(f"file: URLs have no option {', '.join(sorted(options))}.")
    try:
        store = LocalStore(prefix=url.path, mkdir=False)
    except (BaseError, ValueError, OSError) as exc:
        raise Misconfigured(f"{url.path} is not a folder that can be used.") from exc
    return Bucket(store, "", f"file://{url.path}", by_generation=False, in_order=False)


# --- objects --------------------------------------------------------------------------------


def adopt_bucket(found: Any, given: dict[str, Any]) -> tuple[Bucket, Settings]:
    """Returns the bucket that an open store of obstore's stands for."""
    options = dict(given)
    settings = settings_from(options)
    if options:
        raise BadOption(
            f"This store is open already, and cannot be given {', '.join(sorted(options))}."
        )
    if not isinstance(found, (S3Store, AzureStore, GCSStore, MemoryStore)):
        raise BadURL(f"Locks cannot be kept in obstore's {type(found).__name__}.")
    where = f"{type(found).__name__}({getattr(found, 'prefix', None) or ''})"
    generation = isinstance(found, GCSStore)
    return Bucket(found, settings.prefix, where, by_generation=generation), settings
