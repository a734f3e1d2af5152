"""What an object's metadata says about its last writer. Pure: there is no I/O here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct

from holdfast.errors import CorruptRecord, HoldfastError
from holdfast.fencing.gate import Fence, check_admitted, check_same_key, whole_number

# Azure allows only letters, digits and underscores here.
FENCE, KEY, DELETED = "holdfast_fence", "holdfast_key", "holdfast_deleted"


class Present(Struct, frozen=True):
    """An object as it was found."""

    e_tag: str | None
    version: str | None
    fence: Fence | None  # None: nobody has written it through a gate yet
    deleted: bool = False

    @property
    def mode(self) -> dict[str, str]:
        """Returns the condition for a write that replaces just this."""
        known = {"e_tag": self.e_tag, "version": self.version}
        return {name: value for name, value in known.items() if value is not None}

    def check(self, fence: Fence) -> None:
        """Raise unless this fence may replace it."""
        if self.fence is not None:
            check_same_key(fence, self.fence.key)
            check_admitted(fence, self.fence.fence)


def present_of(meta: Mapping[str, Any], attributes: Mapping[str, str], path: str) -> Present:
    """Returns what was found at a path."""
    found = {name.lower(): value for name, value in attributes.items()}
    return Present(meta.get("e_tag"), meta.get("version"), _fence_in(found, path), DELETED in found)


def _fence_in(found: Mapping[str, str], path: str) -> Fence | None:
    if FENCE not in found:
        return None
    try:
        return Fence(unquote(found[KEY], errors="strict"), whole_number(found[FENCE], FENCE))
    except (KeyError, ValueError, HoldfastError) as exc:
        raise CorruptRecord(
            f"The metadata of {path} has a fence that cannot be read, and nobody can tell who has "
            f"written it last: nothing was written."
        ) from exc


def attributes_of(
    fence: Fence, given: Mapping[str, str] | None, *, deleted: bool = False
) -> dict[str, str]:
    """Returns the attributes of an object that is written with this fence."""
    ours = {KEY: quote(fence.key, safe=""), FENCE: str(fence.fence)}
    if deleted:
        ours[DELETED] = "1"
    return {**(given or {}), **ours}
