"""Between rows and texts of a database and what Holdfast knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from holdfast.core.commands import ANYONE, NOBODY, Wake
from holdfast.core.contract import Entry, exactly
from holdfast.core.records import Holder, Record
from holdfast.stores.base import entry_from

LONGEST_OWNERS = 1000

# PostgreSQL takes less than 8000 bytes; the key and the version need some of them.
LONGEST_RECIPIENTS = 6000
# Every role that may connect to the database may listen and notify. So no token is sent whole, and
# a notification is only a reason to look.
TOKEN_PART = 8


def entry_of(now: int, version: int | None, record: str | None) -> Entry:
    """Returns the entry that a row stands for."""
    if version is None or record is None:
        return Entry(now=exactly(now))
    return entry_from(record, version, exactly(now))


def columns_of(record: Record, wake: Wake, text: str) -> dict[str, Any]:
    """Returns what is written: the record, as `text`, and for people what can be read off it."""
    holders = record.holders
    columns: dict[str, Any] = {
        "mode": "free",
        "owners": "",
        "fence": record.fence,
        "expires_at": None,
        "turn": int(wake != NOBODY),
        "record": text,
    }
    if holders:
        columns["mode"] = holders[0].mode
        columns["owners"] = _owners(holders)
        # The record's own may be larger: a grant reserves some.
        columns["fence"] = max([holder.fence for holder in holders])
        columns["expires_at"] = max([holder.expires_at for holder in holders])
    return columns


def _owners(holders: Sequence[Holder]) -> str:
    owners = ", ".join(sorted({holder.owner for holder in holders})).replace("\0", "\ufffd")
    return owners if len(owners) <= LONGEST_OWNERS else f"{owners[: LONGEST_OWNERS - 1]}…"


def array_of(values: Sequence[str | int | None]) -> str:
    """Returns an array as PostgreSQL writes it."""
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: str | int | None) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return "NULL" if value is None else str(value)


class Notification(Struct, frozen=True):
    """A write that may let somebody in."""

    version: int
    whom: tuple[str, ...]  # the beginnings of their tokens
    key: str

    def is_for(self, token: str) -> bool:
        """Returns whether it may let this one in."""
        return self.whom == ANYONE or token[:TOKEN_PART] in self.whom


def notification_text(key: str, wake: Wake) -> str:
    """Returns what a notification says after the version."""
    if wake == NOBODY:
        return ""
    whom = ",".join(token[:TOKEN_PART] for token in wake)
    return f"{whom if len(whom) <= LONGEST_RECIPIENTS else ANYONE[0]} {key}"


def notification_of(payload: str) -> Notification:
    """Returns a notification; raises ValueError if it is none of ours."""
    version, whom, key = payload.split(" ", 2)
    return Notification(int(version), tuple(whom.split(",")), key)
