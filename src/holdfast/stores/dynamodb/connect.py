"""From a URL, or an object of boto3's, to a client and the options of a table.

    dynamodb://TABLE?region=eu-west-1&endpoint_url=http://localhost:8000

boto3 finds the credentials: in the environment, in a profile, or in the machine's role. They do
not belong in the URL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import boto3
from botocore import exceptions as boto
from botocore.client import BaseClient
from botocore.config import Config
from msgspec import Struct

from holdfast.core.records import SECOND, Micros
from holdfast.errors import BadOption, BadURL, HoldfastError, Misconfigured
from holdfast.stores.dynamodb.errors import trouble
from holdfast.stores.url import StoreURL

Billing = Literal["on-demand", "provisioned"]

POOL_SIZE = 32
_TABLE = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,255}")


class Options(Struct, frozen=True, kw_only=True):
    """The options of a DynamoDB store, in the URL or as arguments of `connect`."""

    table: str
    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
    partition_key: str = "lock_key"
    timeout_s: float = 5.0
    poll_s: float = 1.0
    clock_margin_s: float = 0.5
    billing: Billing = "on-demand"
    read_capacity: int = 5
    write_capacity: int = 5

    @property
    def clock_margin(self) -> Micros:
        """Returns how far the clock of one of the service's machines may be off."""
        return int(self.clock_margin_s * SECOND)


# The options that are numbers: type, minimum and maximum.
_NUMBERS: Mapping[str, tuple[type, float, float]] = {
    "timeout_s": (float, 0.1, 60),
    "poll_s": (float, 0.05, 60),
    "clock_margin_s": (float, 0, 60),
    "read_capacity": (int, 1, 40_000),
    "write_capacity": (int, 1, 40_000),
}
# Options that cannot be changed on a client that exists already.
_OF_A_CLIENT = frozenset({"region", "endpoint_url", "profile", "timeout_s"})


def options_from(given: Mapping[str, Any]) -> Options:
    """Returns options that were checked. Raises `BadOption`."""
    unknown = given.keys() - set(Options.__struct_fields__)
    if unknown:
        raise BadOption(f"A DynamoDB store has no option {', '.join(sorted(unknown))}.")
    checked = {name: _checked(name, value) for name, value in given.items()}
    if not _TABLE.fullmatch(str(checked.get("table", ""))):
        raise BadOption(
            f"table is a DynamoDB table's name, 3 to 255 letters, digits, and - _ . "
            f"(not {given.get('table')!r})."
        )
    return Options(**checked)


def _checked(name: str, value: Any) -> Any:
    if name in _NUMBERS:
        return _number(name, value)
    if name == "billing" and value not in get_args(Billing):
        raise BadOption(f"billing is 'on-demand' or 'provisioned', not {value!r}.")
    if name == "partition_key" and not _NAME.fullmatch(str(value)):
        raise BadOption(f"partition_key is the name of an attribute, not {value!r}.")
    return value


def _number(name: str, value: Any) -> Any:
    kind, least, most = _NUMBERS[name]
    try:
        number = kind(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not least <= number <= most:
        raise BadOption(f"{name} is a number from {least:g} to {most:g}, not {value!r}.")
    return number


def options_from_url(url: StoreURL, given: Mapping[str, Any]) -> Options:
    """Returns the options in a URL and in the arguments. Arguments win."""
    table = urlsplit(url.text).netloc  # `url.host` has lost the upper case
    if url.user or url.password or "@" in table:
        raise BadURL(
            "A dynamodb: URL has no place for credentials: boto3 finds them in the environment, "
            "in a profile (?profile=) or in the machine's role."
        )
    if not _TABLE.fullmatch(table) or url.path.strip("/"):
        raise BadURL("A DynamoDB store is named by its table: dynamodb://TABLE?region=eu-west-1")
    return options_from({"table": table, **url.options, **given})


# --- clients --------------------------------------------------------------------------------


def new_client(session: Any, options: Options) -> Any:
    """Returns a client of our own, which sends each request once. The core decides whether to try
    again: it knows how much time is left."""
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=options.timeout_s,
        read_timeout=options.timeout_s,
        max_pool_connections=POOL_SIZE,
        tcp_keepalive=True,
        parameter_validation=False,
        user_agent_extra="holdfast",
    )
    try:
        session = session or boto3.Session(profile_name=options.profile)
        return session.client(
            "dynamodb",
            region_name=options.region,
            endpoint_url=options.endpoint_url,
            config=config,
        )
    except boto.NoRegionError as exc:
        raise Misconfigured(
            "No region is set: name it with ?region=, in AWS_DEFAULT_REGION or in a profile."
        ) from exc
    except (boto.BotoCoreError, ValueError) as exc:
        raise _cannot(exc) from exc


def _cannot(exc: Exception) -> HoldfastError:
    if isinstance(exc, (boto.InvalidRegionError, ValueError)):
        return Misconfigured(f"{exc} Check the region and the endpoint_url.")
    return trouble(exc, "reading", "DynamoDB", sent_twice=False)


class Adopted(Struct, frozen=True):
    """A client, and what is known of it. `owned`: we made it, from `session` if there is one, and
    close it."""

    client: Any
    options: Options
    owned: bool = False
    typed: bool = True
    session: Any = None


def own(session: Any, options: Options) -> Adopted:
    """Returns a client of our own. Without a session boto3 finds the credentials."""
    return Adopted(new_client(session, options), options, owned=True, session=session)


def adopt(found: Any, given: Mapping[str, Any]) -> Adopted:
    """Returns the client of an application's client, resource or table, or a new one on its
    session."""
    if isinstance(found, boto3.Session):
        options = options_from(given)
        return own(found, options)
    client = found if isinstance(found, BaseClient) else getattr(found, "meta", found)
    client = getattr(client, "client", client)
    if not isinstance(client, BaseClient) or client.meta.service_model.service_name != "dynamodb":
        raise BadURL(
            f"Holdfast opens a store on a boto3 session, or on a client, a resource or a table "
            f"for DynamoDB, not on a {type(found).__name__}."
        )
    decided = _OF_A_CLIENT & given.keys()
    if decided:
        raise BadOption(
            f"The boto3 client is made already, and cannot be given {', '.join(sorted(decided))}."
        )
    if client is not found and hasattr(found, "table_name"):
        given = {"table": found.table_name, **given}
    # A resource's client puts the types on, and takes them off, by itself.
    return Adopted(client, options_from(given), typed=client is found)
