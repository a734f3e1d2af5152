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
from holdfast.stores.sqlite.protocol import SQL
from holdfast.stores.sqlite.transport import Connection

# The time namespace in which Linux boots. Its number is the same everywhere.
INITIAL_NAMESPACE = "time:[4026531834]"
# Names of the boot-time clock in /proc/self/timens_offsets; the number is that of Linux 5.6.
_BOOT_TIME = ("boottime", "7")
# The end of the year 9999. A clock that shows a later time is broken.
_LATEST: Micros = 253_402_300_800 * SECOND
_Offset = Annotated[int, Meta(ge=-_LATEST, le=_LATEST)]


class StoredClock(Struct, frozen=True, omit_defaults=True):
    """What the file says: the store's time is `offset` plus the boot-time clock of this boot."""

    boot: str
    offset: _Offset
    # True if the offset belongs to the machine's own clock. Release 0.1 did not write this, and
    # used the clock of whatever namespace it was in.
    machine: bool = False


_decoder = msgspec.json.Decoder(StoredClock)


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
            ahead = _ahead_of_machine(connection, self._namespace)
            known = read_clock(connection, boot) or set_clock(connection, boot, ahead)
            if ahead and not known.machine:
                raise Misconfigured(_UNCLEAR.format(path=connection.path))
            self._offset = known.offset - ahead
        if not 0 <= self.now() < _LATEST:
            raise corrupt(connection, "it shows an impossible time")

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
    """Returns the id of this boot of the machine; None where the system does not tell."""
    found = system.read_proc(system.BOOT_ID)
    return None if found is None else found.strip()


def _ahead_of_machine(connection: Connection, namespace: str | None) -> Micros:
    """Returns by how much the boot-time clock of this process is ahead of the machine's."""
    if namespace is None or namespace == INITIAL_NAMESPACE:
        return 0
    # The kernel tells the offsets of the children's namespace: it must be our own.
    if system.time_namespace(system.CHILDREN_TIME_NAMESPACE) == namespace:
        for line in (system.read_proc(system.TIME_OFFSETS) or "").splitlines():
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


def read_clock(connection: Connection, boot: str) -> StoredClock | None:
    """Returns the clock that is stored for this boot; None if there is none yet."""
    raw = _row(connection)
    if raw is None:
        return None
    try:
        known = _decoder.decode(raw)
    except UNREADABLE as exc:
        raise corrupt(connection, str(exc)) from exc
    return known if known.boot == boot else None


def set_clock(connection: Connection, boot: str, ahead: Micros) -> StoredClock:
    """Store the clock for this boot, unless another process was faster. Returns what is stored."""
    with connection.transaction():
        known = read_clock(connection, boot)  # somebody may have been faster
        if known is None:
            (newest,) = connection.run(SQL["newest_version"]).fetchone()
            machine = clock.monotonic() - ahead
            known = StoredClock(boot, max(clock.wall(), newest + 1) - machine, machine=True)
            value = msgspec.json.encode(known).decode()
            connection.run(SQL["set_meta"], ("clock", value), writing=True)
    return known


def corrupt(connection: Connection, why: str) -> CorruptClock:
    """Returns the error for a stored clock that cannot be used."""
    return CorruptClock(
        f"{connection.path}: the clock in its table holdfast_meta is damaged ({why}). End all "
        f"programs that use the file, then let them set it anew: sqlite3 '{connection.path}' "
        f"'DELETE FROM holdfast_meta'"
    )
