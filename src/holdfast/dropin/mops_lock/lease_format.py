"""What is in a lease file, in mops' format.

    writer_id          who acquired the lease; an orchestrator and its remotes write the same
    written_at         when it was written, by the writer's wall clock; "" once it is released
    expire_s           for how many seconds after that it lasts
    first_acquired_at  "" while a worker with mops waits whether it was the last writer
    released_at        "" while it is held

The rest is for people. Fields that we do not know are ignored, and not written again.
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
    """Returns the contents of a lease file. Raises `CorruptRecord` if it is something else."""
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
    """Whether the holder released it."""
    return bool(contents.get("released_at"))


def expires_at(contents: LeaseContents, uri: str) -> datetime | None:
    """Returns when the lease runs out, by its writer's clock and `expire_s`; None if it was never
    written as held."""
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
    """Makes the contents of one party's lease file. No two of them have the same bytes."""

    def __init__(self, writer_id: str, expire_s: float, name: str = "") -> None:
        self.writer_id = writer_id
        self.expire_s = expire_s
        self.name = name  # mops calls the other party `remote`
        self.first_acquired_at = ""
        self._first_written_at = ""
        self._count = 0

    def held(self) -> bytes:
        """Returns the file of a lease that is held for `expire_s` from now on."""
        return self._encode(released=False)

    def released(self) -> bytes:
        """Returns the file of a lease that is released now."""
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
