"""Leases on named things: one lock API over the store you already run.

    import holdfast

    locks = holdfast.connect()
    with locks.acquire("pipeline:orders", ttl=60) as lease:
        load(fence=lease.fence)

`from holdfast import aio` has the same names, awaited.
"""

from holdfast.errors import (
    AcquireTimeout,
    BadKey,
    BadOption,
    BadTicket,
    BadURL,
    Busy,
    ClientClosed,
    ClientForked,
    CorruptRecord,
    ForeignStore,
    HoldfastError,
    LeaseLost,
    LimitMismatch,
    Misconfigured,
    MissingDriver,
    OutcomeUnknown,
    Refused,
    StoreFull,
    StoreReadOnly,
    TicketRefused,
    Unavailable,
    Unsupported,
    UsageError,
)
from holdfast.guards import current_lease
from holdfast.sync import Lease, Leases, Locks, connect
from holdfast.views import HolderInfo, LockInfo, WaiterInfo
from holdfast.wants import Want

__version__ = "0.1.0"

__all__ = [
    "AcquireTimeout",
    "BadKey",
    "BadOption",
    "BadTicket",
    "BadURL",
    "Busy",
    "ClientClosed",
    "ClientForked",
    "CorruptRecord",
    "ForeignStore",
    "HolderInfo",
    "HoldfastError",
    "Lease",
    "LeaseLost",
    "Leases",
    "LimitMismatch",
    "LockInfo",
    "Locks",
    "Misconfigured",
    "MissingDriver",
    "OutcomeUnknown",
    "Refused",
    "StoreFull",
    "StoreReadOnly",
    "TicketRefused",
    "Unavailable",
    "Unsupported",
    "UsageError",
    "WaiterInfo",
    "Want",
    "connect",
    "current_lease",
]
