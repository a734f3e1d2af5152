"""What is in a lease file: the words of mops, read with care and written as mops does.

    writer_id          who has acquired it; an orchestrator and its remotes write the same
    written_at         when, by the writer's wall clock; "" once it is released
    expire_s           for how long from then on
    first_acquired_at  "" while mops still waits whether it was the last to write
    released_at        "" while it is held

The rest is for people. What we do not know is left alone and not written again.
"""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict, cast

from holdfast.errors import CorruptRecord


class LeaseContents(TypedDict):
    """A lease file as a dict."""

    writer_id: str
    written_at: str
    expire_s: float
    hostname: str
    pid: str
    tid: int
    write_count: int
    first_written_at: str
    first_acquired_at: str
    released_at: str


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(tz=UTC)


def decode(body: bytes, uri: str) -> LeaseContents:
    """A lease file, or `CorruptRecord` if it is something else."""
    try:
        contents: Any = json.loads(body)
    except ValueError:
        contents = None
    if not isinstance(contents, dict) or not isinstance(contents.get("writer_id"), str):
        raise CorruptRecord(
            f"What is at {uri} is not a lease of mops. It was left alone: move it away.", key=uri
        )
    return cast("LeaseContents", contents)


def is_released(contents: LeaseContents) -> bool:
    """Whether its holder gave it back."""
    return bool(contents.get("released_at"))


def expires_at(contents: LeaseContents, uri: str) -> datetime | None:
    """When it runs out by the clock of its writer, and for as long as that one has said;
    None: it was never written as held."""
    written_at, expire_s = contents.get("written_at"), contents.get("expire_s")
    if not written_at:
        return None
    try:
        written = datetime.fromisoformat(written_at)
        aware = written if written.tzinfo is not None else written.replace(tzinfo=UTC)
        return aware + timedelta(seconds=float(expire_s))
    except (TypeError, ValueError, OverflowError):
        raise CorruptRecord(
            f"The lease at {uri} does not say when it runs out. It was left alone: move it away.",
            key=uri,
        ) from None


class Emitter:
    """Writes one party's lease files, ever new: no two of them have the same bytes."""

    def __init__(self, writer_id: str, expire_s: float, name: str = "") -> None:
        self.writer_id = writer_id
        self.expire_s = expire_s
        self.name = name  # mops calls the other party `remote`
        self.first_acquired_at = ""
        self._first_written_at = ""
        self._count = 0

    def held(self) -> bytes:
        """The file of a lease that is held from now on for `expire_s`."""
        return self._encode(released=False)

    def released(self) -> bytes:
        """The file of a lease that is given back now."""
        return self._encode(released=True)

    def _encode(self, *, released: bool) -> bytes:
        self._count += 1
        now = utc_now().isoformat()
        self._first_written_at = self._first_written_at or now
        self.first_acquired_at = self.first_acquired_at or now
        contents: dict[str, Any] = {
            "writer_id": self.writer_id,
            "written_at": "" if released else now,
            "expire_s": self.expire_s,
            "write_count": self._count,
            "hostname": os.uname().nodename,
            "pid": str(os.getpid()),
            "tid": threading.get_ident(),
            "first_written_at": self._first_written_at,
            "first_acquired_at": self.first_acquired_at,
            "released_at": now if released else "",
        }
        if self.name:
            contents["writer_name"] = self.name
        return json.dumps(contents, indent=2).encode()
