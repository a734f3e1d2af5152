"""Reads what Linux tells about this process and its machine under /proc."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.errors import Unavailable
from holdfast.stores.shortage import is_shortage, shortage

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOUNTS = Path("/proc/self/mountinfo")
TIME_OFFSETS = Path("/proc/self/timens_offsets")
TIME_NAMESPACE = "/proc/self/ns/time"
CHILDREN_TIME_NAMESPACE = "/proc/self/ns/time_for_children"


def read_proc(path: Path) -> str | None:
    """Returns the content of a file; None if the system does not have it.

    If the file cannot be read for want of descriptors or memory, this raises: a process that took
    that for a missing boot id would use another clock than the others.
    """
    try:
        return path.read_text(errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as exc:
        if is_shortage(exc):
            raise shortage(str(path)) from exc
        raise Unavailable(f"{path} cannot be read just now: {exc.strerror}.") from exc


def time_namespace(of: str = TIME_NAMESPACE) -> str | None:
    """Returns the time namespace of this process; None if the system has no such namespaces."""
    try:
        return os.readlink(of)  # noqa: PTH115 (asked often)
    except OSError:
        return None
