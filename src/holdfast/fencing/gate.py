"""The gate: what every target of writes does with a fence, in one place and without I/O.

 1. A gate remembers one number for each key: the largest fence that it has admitted.
 2. A fence that is not smaller is admitted, and remembered from then on.
 3. A smaller one is refused with `StaleFence`: whoever brings it has lost the lock, and a later
    holder has been here.
 4. The comparison, the memory and the write that they guard are one transaction, one condition or
    one script of the target. Otherwise a writer could stop between the comparison and its write.

The modules beside this one say the same to each kind of target. A lease that is known to be lost
or released is refused before the target is asked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from holdfast.api.lease_base import LeaseBase, LeasesBase
from holdfast.api.options import check_key
from holdfast.core.contract import MAX_KEY_BYTES
from holdfast.errors import BadOption, KeyMismatch, StaleFence, UsageError

LARGEST = 2**63 - 1  # what a BIGINT holds


class Fence(Struct, frozen=True):
    """A key and a fence, without the lease they come from: for services and child processes.

    key    the name of the lock
    fence  the number of the lease
    """

    key: str
    fence: int

    def __post_init__(self) -> None:
        check_key(self.key, MAX_KEY_BYTES)
        if type(self.fence) is not int or not 0 <= self.fence <= LARGEST:
            raise BadOption(f"A fence is a whole number from 0 to 2**63 - 1, not {self.fence!r}.")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Fence:
        """Returns the fence of the `holdfast run` that started this process."""
        try:
            key, fence = environ["HOLDFAST_KEY"], environ["HOLDFAST_FENCE"]
        except KeyError as missing:
            raise UsageError(
                f"{missing.args[0]} is not set: start this program with `holdfast run KEY -- …`."
            ) from None
        return cls(key, whole_number(fence, "HOLDFAST_FENCE"))


Fenced: TypeAlias = LeaseBase[Any] | Fence


def fence_of(holder: object, key: str | None = None) -> Fence:
    """Returns the key and the fence of a lease that is surely held, or of a `Fence`.

    `key` is the one that the target is guarded by, where the caller names it.
    """
    if isinstance(holder, LeaseBase):
        _check_exclusive(holder)
        holder.check()
        fence = Fence(holder.key, holder.fence)
    elif isinstance(holder, Fence):
        fence = holder
    elif isinstance(holder, LeasesBase):
        raise UsageError("Admit leases one by one: each of their keys has a fence of its own.")
    else:
        raise UsageError(f"Give a lease or a Fence(key, fence), not {type(holder).__name__}.")
    if key is not None:
        check_same_key(fence, key)
    return fence


def _check_exclusive(lease: LeaseBase[Any]) -> None:
    if lease.mode != "exclusive":
        raise UsageError(
            f"The lease on {lease.key!r} is {lease.mode}: others hold the lock at the same time, "
            f"and the fence does not tell who may write. Only an exclusive lease can be admitted."
        )


def check_same_key(fence: Fence, key: str) -> None:
    """Raise unless a target that is guarded by `key` can compare this fence."""
    if fence.key != key:
        raise KeyMismatch(
            f"This is guarded by {key!r}, and the lease is on {fence.key!r}: fences of different "
            f"keys cannot be compared. Nothing was written."
        )


def admits(remembered: int | None, fence: int) -> bool:
    """The law. Returns whether a gate that remembers this lets this fence in."""
    return remembered is None or remembered <= fence


def check_admitted(fence: Fence, remembered: int | None) -> None:
    """Raise `StaleFence` if the gate remembers a larger fence."""
    if not admits(remembered, fence.fence):
        raise StaleFence(
            f"A later holder of {fence.key!r} has written with fence {remembered}, and this is "
            f"{fence.fence}: nothing was written. Stop, the lock is no longer yours.",
            key=fence.key,
            fence=fence.fence,
            remembered=remembered,
        )


def whole_number(text: str, name: str) -> int:
    """Returns the number in a text of digits only."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST))):
        raise BadOption(f"{name} is a whole number in decimal digits, not {text[:40]!r}.")
    return int(text)
