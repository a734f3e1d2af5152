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

Workers with mops and workers with this module exclude each other on the same folder, as far as
mops can do that. Among workers with this module the exclusion is exact: they replace only what
they have seen. A stale `maintain()` or `release()` leaves a new owner's lease alone. If a lease
could not be maintained, the daemon tries again until it is lost, and reports the loss. There is no
fencing number: for that, use `holdfast.connect()` with `share()` and `join()`.

    lease_format what is in a lease file
    lease_file   the file: read it, and replace it if it is what was read
    bucket_file  the same as an object in a bucket
    lease        one party's hold: maintain and release
    acquiring    acquire a lease, also beside workers with mops
    maintain     maintain it in the background, and from a remote
    setting      whether it is maintained in the background
    inspecting   look at it
"""

from holdfast.dropin.mops_lock.acquiring import acquire
from holdfast.dropin.mops_lock.errors import CannotMaintainLease, LeaseLostError
from holdfast.dropin.mops_lock.inspecting import lease_uri_for, read_lease
from holdfast.dropin.mops_lock.lease import LeaseAcquired
from holdfast.dropin.mops_lock.lease_file import LEASE_DIRNAME
from holdfast.dropin.mops_lock.maintain import (
    add_lease_to_maintenance_daemon,
    maintain_to_release,
    make_remote_lease_writer,
    no_maintain,
)
from holdfast.dropin.mops_lock.setting import MAINTAIN_LEASES

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
