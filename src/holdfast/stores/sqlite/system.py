"""What Linux tells about this process and its machine, in files under /proc."""

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


def told(path: Path) -> str | None:
    """What is in such a file; None where the system does not tell.

    A shortage (of file descriptors, of memory) is not "the system does not tell": whoever took
    it for that would go on with another clock than everybody else.
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
    """Whose clocks this process reads; None: the system has one set of clocks for all."""
    try:
        return os.readlink(of)  # noqa: PTH115 (asked often)
    except OSError:
        return None
