"""The leases of `thds.mops`, as a drop-in: the same calls and the same file on the store.

Existing code only changes its import:

    from holdfast.dropin import mops_lock as lease

    acquired = lease.acquire(f"{memo_uri}/lock")
    if acquired:
        release = lease.maintain_to_release(acquired)
        ...
        release()

    remote = lease.make_remote_lease_writer(f"{memo_uri}/lock", expected_writer_id)
    lease.add_lease_to_maintenance_daemon(remote)

Workers that still use mops on the same folder exclude these, and these exclude them, as far
as mops can. Among themselves these are exact: they replace only what they have seen. A stale
`maintain()` or `release()` leaves a new owner's lease alone, and what could not be
maintained is tried again until it is lost, which is told. There is no fencing number: for
that, use `holdfast.connect()` with `share()` and `join()`.

    contents     what is in a lease file
    slots        the file or object: read it, and replace it if it is what was read
    lease        one party's hold: maintain and release
    acquiring    getting it, also beside mops
    maintain     in the background, and from a remote
    setting      whether it is maintained in the background
    inspecting   looking at it
"""

from holdfast.dropin.mops_lock.acquiring import acquire
from holdfast.dropin.mops_lock.errors import CannotMaintainLease, LeaseLostError
from holdfast.dropin.mops_lock.inspecting import lease_uri_for, read_lease
from holdfast.dropin.mops_lock.lease import LeaseAcquired
from holdfast.dropin.mops_lock.maintain import (
    add_lease_to_maintenance_daemon,
    maintain_to_release,
    make_remote_lease_writer,
    no_maintain,
)
from holdfast.dropin.mops_lock.setting import MAINTAIN_LEASES
from holdfast.dropin.mops_lock.slots import LEASE_DIRNAME

__all__ = [
    "LEASE_DIRNAME",
    "MAINTAIN_LEASES",
    "CannotMaintainLease",
    "LeaseAcquired",
    "LeaseLostError",
    "acquire",
    "add_lease_to_maintenance_daemon",
    "lease_uri_for",
    "maintain_to_release",
    "make_remote_lease_writer",
    "no_maintain",
    "read_lease",
]
