"""The clock that all processes on a file share.

Processes of one machine share its boot-time clock, which never jumps. What it counts from is
written into the file by the first to open it after a boot: the time of day, or later if the file
has seen a later one.

A container may have a boot-time clock of its own: it is in another *time namespace* of Linux. The
kernel tells by how much the two differ, so that everybody counts by the machine's own clock.
"""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from holdfast.core.records import SECOND, UNREADABLE, Micros
from holdfast.errors import CorruptClock, Misconfigured
from holdfast.runtime import clock
from holdfast.stores.sqlite import system
from holdfast.stores.sqlite.file import SQL, Connection

# The namespace in which a machine boots has the same number everywhere.
MACHINES_OWN = "time:[4026531834]"
# Names of the boot-time clock in /proc/self/timens_offsets; the number is that of Linux 5.6.
_BOOT_TIME = ("boottime", "7")
# A clock that shows a later year is broken, and its times would not fit into a record.
_LATEST: Micros = 253_402_300_800 * SECOND
_Offset = Annotated[int, Meta(ge=-_LATEST, le=_LATEST)]


class Known(Struct, frozen=True, omit_defaults=True):
    """What is written in the file: at which boot its clock was at 0, counted from 1970."""

    boot: str
    offset: _Offset
    # Whether it counts by the machine's clock for certain. Release 0.1 counted by the clock of
    # whatever namespace it was in.
    machine: bool = False


class Clock:
    """The store's time, as this process can read it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._offset: Micros = 0
        self._read = clock.wall
        self._namespace = system.time_namespace()
        boot = boot_id()
        if boot is None:
            self._check_that_nobody_counts_from_a_boot()
        else:
            self._read = clock.monotonic
            ahead = _ahead_of_the_machine(connection, self._namespace)
            known = read_clock(connection, boot) or set_clock(connection, boot, ahead)
            if ahead and not known.machine:
                raise Misconfigured(_UNCLEAR.format(path=connection.path))
            self._offset = known.offset - ahead
        if not 0 <= self.now() < _LATEST:
            raise corrupt(connection, "it shows a time that cannot be")

    def now(self) -> Micros:
        """The store's time."""
        return self._offset + self._read()

    def check(self) -> None:
        """Raise if this process reads another clock than it did when it connected."""
        if system.time_namespace() != self._namespace:
            raise Misconfigured(
                f"{self._connection.path}: this process was moved to another time namespace, where "
                f"the clocks show other times: connect again."
            )

    def _check_that_nobody_counts_from_a_boot(self) -> None:
        if sys.platform == "linux" and _row(self._connection) is not None:
            raise Misconfigured(
                f"{self._connection.path}: others count its time from the machine's boot, but this "
                f"process cannot read {system.BOOT_ID} and would go by the time of day: let it see "
                f"/proc."
            )


_UNCLEAR = (
    "{path}: an earlier release of Holdfast has set its clock, and does not say whether to this "
    "container's boot time or to the machine's: end all programs that use the file, then let them "
    "set it anew: sqlite3 '{path}' 'DELETE FROM holdfast_meta'"
)


def boot_id() -> str | None:
    """Which boot of the machine this is; None where the system does not tell."""
    told = system.told(system.BOOT_ID)
    return None if told is None else told.strip()


def _ahead_of_the_machine(connection: Connection, namespace: str | None) -> Micros:
    """By how much the boot-time clock of this process differs from the machine's."""
    if namespace is None or namespace == MACHINES_OWN:
        return 0
    # What the kernel tells is about this process's children.
    if system.time_namespace(system.CHILDREN_TIME_NAMESPACE) == namespace:
        for line in (system.told(system.TIME_OFFSETS) or "").splitlines():
            name, seconds, nanoseconds = line.split()
            if name in _BOOT_TIME:
                return int(seconds) * SECOND + int(nanoseconds) // 1000
    raise Misconfigured(
        f"{connection.path}: this process is in a time namespace of its own, and the system does "
        f"not tell how its clock differs from that of the others: let it see /proc, and let it "
        f"connect before it makes a namespace for its children."
    )


def _row(connection: Connection) -> str | bytes | None:
    row = connection.run(SQL["get_meta"], ("clock",)).fetchone()
    return None if row is None else row[0]


def read_clock(connection: Connection, boot: str) -> Known | None:
    """What the file says about this boot; None: nothing yet."""
    raw = _row(connection)
    if raw is None:
        return None
    try:
        known = msgspec.json.decode(raw, type=Known)
    except UNREADABLE as exc:
        raise corrupt(connection, str(exc)) from exc
    return known if known.boot == boot else None


def set_clock(connection: Connection, boot: str, ahead: Micros) -> Known:
    """The first to open the file after a boot says what its clock counts from."""
    with connection.transaction():
        known = read_clock(connection, boot)  # somebody may have been faster
        if known is None:
            (newest,) = connection.run(SQL["newest_version"]).fetchone()
            machine = clock.monotonic() - ahead
            known = Known(boot, max(clock.wall(), newest + 1) - machine, machine=True)
            value = msgspec.json.encode(known).decode()
            connection.run(SQL["set_meta"], ("clock", value), writing=True)
    return known


def corrupt(connection: Connection, why: str) -> CorruptClock:
    """The error for a clock that nobody can go by."""
    return CorruptClock(
        f"{connection.path}: the clock in its table holdfast_meta is damaged ({why}). End all "
        f"programs that use the file, then let them set it anew: sqlite3 '{connection.path}' "
        f"'DELETE FROM holdfast_meta'"
    )
