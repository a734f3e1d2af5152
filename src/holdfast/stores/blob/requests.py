"""The few requests that the blob protocols are made of, as data, and their answers."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from holdfast.core.contract import Version
from holdfast.core.records import Micros

R = TypeVar("R")


class Found(Struct, frozen=True):
    """An object, its version, and when it was written by the service's clock."""

    body: bytes
    version: Version
    modified: datetime


class Missing(Struct, frozen=True):
    """There is no such object. `time` is the service's time, if its reply tells it."""

    time: datetime | None = None


class Written(Struct, frozen=True):
    """The object has this version now."""

    version: Version


class Unmet(Struct, frozen=True):
    """The condition of a write was not met, and nothing was written."""


class Unchanged(Struct, frozen=True):
    """The object still has the version that we know."""


Answer: TypeAlias = Found | Missing | Written | Unmet | Unchanged


class Get(Struct, frozen=True):
    """Read an object -> `Found`, `Missing`; or `Unchanged` if it still is `unless`."""

    name: str
    unless: Version = None


class Head(Struct, frozen=True):
    """Read what is known about an object -> `Found` without a body, `Missing`."""

    name: str


class Put(Struct, frozen=True):
    """Write an object if it does not exist, if it is this version, or whatever is there
    -> `Written`, `Unmet`."""

    name: str
    body: bytes
    only: Version = None
    anyway: bool = False


class Delete(Struct, frozen=True):
    """Delete an object, whatever it is now -> `Missing`."""

    name: str


class Several(Struct, frozen=True):
    """Many requests at once -> their answers in the same order."""

    requests: tuple[Get, ...]


class Names(Struct, frozen=True):
    """The first names in order that begin with `start` and come after `after` -> a list."""

    start: str
    after: str | None
    limit: int


class Pause(Struct, frozen=True):
    """Wait for a while -> True if the store was closed meanwhile."""

    duration: Micros


Request: TypeAlias = Get | Head | Put | Delete | Several | Names | Pause
Calls: TypeAlias = Generator[Request, Any, R]
