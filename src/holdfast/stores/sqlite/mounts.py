"""Refuses files on mounts where processes would not see each other's locks.

SQLite keeps a log beside the file, and an index of the log in shared memory. All processes must see
the same log and run on one machine. Otherwise each would hold its locks alone, without noticing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import Misconfigured
from holdfast.stores.sqlite import system

NETWORKED = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs",
    "ocfs2", "gfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse",
    "fuse.rclone",
}  # fmt: skip


class Mount(NamedTuple):
    """A mounted file system: its mount point and its type."""

    point: Path
    kind: str


def check_place(path: Path, *, one_machine: bool) -> None:
    """Raise if the system says that processes would not see each other's locks in this file."""
    real = path.resolve()
    mount = mount_of(real)
    if mount is None:
        return
    if mount.point == real:
        raise Misconfigured(
            f"{path} is mounted by itself, as into a container. SQLite keeps a log beside the "
            f"file, and whoever else uses it would have another log: mount its folder instead."
        )
    if mount.kind in NETWORKED and not one_machine:
        raise Misconfigured(
            f"{path} is on a network file system ({mount.kind}), through which machines do not see "
            f"each other's locks in an SQLite file: name a file on a local disk, or use a server "
            f"(postgresql:, mysql:, redis:). If only one machine will ever use this file: "
            f"?one_machine=yes"
        )


def mount_of(path: Path) -> Mount | None:
    """Returns the mount that a path is on; None where the system does not tell."""
    found: Mount | None = None
    for mount in map(_mount, (system.read_proc(system.MOUNTS) or "").splitlines()):
        inside = path.is_relative_to(mount.point)
        # Of two in the same place the later one hides the earlier.
        if inside and (found is None or len(mount.point.parts) >= len(found.point.parts)):
            found = mount
    return found


def _mount(line: str) -> Mount:
    before, _, after = line.partition(" - ")
    point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), before.split(" ")[4])
    return Mount(Path(point), after.split(" ", 1)[0])
