"""What `manage.py check` says of the locks.

holdfast.E001  settings.HOLDFAST cannot work, or a driver is missing
holdfast.W001  the store cannot be reached or used   (--database ALIAS, or else --deploy)
holdfast.W002  the locks are in the database of a cache, which cache.clear() empties
holdfast.W003  no other process sees these locks     (--deploy)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, Warning, register

import holdfast
from holdfast.errors import HoldfastError
from holdfast.integrations.django.clients import connected
from holdfast.integrations.django.settings import SETTING, BadSettings, Place, place
from holdfast.stores.url import parse

TAG = "holdfast"
PROBE = "holdfast:check"  # a key that nobody acquires
MAKES_FILES = ("sqlite", "file")  # a check before a deployment may run as another user


def register_checks() -> None:
    """Have Django run the checks."""
    register(check_settings, TAG)
    register(check_database, TAG, Tags.database)
    register(check_deployment, TAG, deploy=True)


def check_settings(**_: Any) -> list[CheckMessage]:
    """Check what can be told without the store."""
    try:
        found = place()
        if parse(found.url).scheme not in MAKES_FILES:
            connected(holdfast.connect).close()  # sends nothing, but needs the driver
    except HoldfastError as trouble:
        return [Error(str(trouble), id="holdfast.E001")]
    return _shared_with_a_cache(found)


def check_database(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check that locks can be had in a database that may be asked."""
    found = _valid_place()
    if found is None or found.kind != "database" or found.alias not in (databases or ()):
        return []
    return _reachable()


def check_deployment(**_: Any) -> list[CheckMessage]:
    """Check that locks outside of the databases can be had, and that other processes see them."""
    found = _valid_place()
    if found is None or found.kind == "database":
        return []
    return _reachable() or _seen_by_others()


def _valid_place() -> Place | None:
    try:
        return place()
    except BadSettings:  # which `check_settings` has told
        return None


def _shared_with_a_cache(found: Place) -> list[CheckMessage]:
    if found.kind != "cache" or "db" in found.options:
        return []
    return [
        Warning(
            f"The locks are in the Redis database of the cache {found.alias!r}: cache.clear() "
            f"would remove them while they are held.",
            hint=f'Give them another one: {SETTING} = {{"cache": {found.alias!r}, "db": 1}}.',
            id="holdfast.W002",
        )
    ]


def _reachable() -> list[CheckMessage]:
    # With a client of its own: one that stays connected would keep a test's database from being
    # removed.
    try:
        with connected(holdfast.connect) as locks:
            locks.show(PROBE)
    except HoldfastError as trouble:
        return [
            Warning(
                f"The store of the locks cannot be used: {trouble}",
                hint="`manage.py holdfast doctor` examines the store.",
                id="holdfast.W001",
            )
        ]
    return []


def _seen_by_others() -> list[CheckMessage]:
    with connected(holdfast.connect) as locks:
        facts = locks.facts
    if facts.reach != "process":
        return []
    return [
        Warning(
            f"Other processes do not see the locks of the {facts.name} store.",
            hint=f"Name a store that all of them reach in {SETTING}.",
            id="holdfast.W003",
        )
    ]
