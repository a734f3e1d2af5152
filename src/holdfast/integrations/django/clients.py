"""`locks` and `aio_locks`: the clients of this process, made from the settings at first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import holdfast
from holdfast import aio
from holdfast.api.default import LazyLocks
from holdfast.api.default_async import LazyLocks as LazyAioLocks
from holdfast.errors import UsageError
from holdfast.integrations.django.settings import SETTING, BadSettings, place

L = TypeVar("L")


def connected(connect: Callable[..., L]) -> L:
    """Returns a new client on the store of the settings."""
    found = place()
    try:
        return connect(found.url, **found.options)
    except (UsageError, TypeError) as trouble:  # an option that there is not, or a missing driver
        raise BadSettings(f"settings.{SETTING}: {trouble}") from None


lazy = LazyLocks(lambda: connected(holdfast.connect))
lazy_aio = LazyAioLocks(lambda: connected(aio.connect))
locks = cast("holdfast.Locks", lazy)
aio_locks = cast("aio.Locks", lazy_aio)


def forget_clients(setting: str, **_: Any) -> None:
    """Connect anew when a test has changed a setting that the clients were made from."""
    if setting in (SETTING, "DATABASES", "CACHES"):
        lazy.forget()
        lazy_aio.forget()
