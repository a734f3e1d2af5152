"""Leases on named things: one lock API over the store you already run.

    import holdfast

    locks = holdfast.connect()
    with locks.acquire("pipeline:orders", ttl=60) as lease:
        load(fence=lease.fence)

`from holdfast import aio` has the same names, awaited.
"""

from typing import TYPE_CHECKING

from holdfast.errors import (
    AcquireTimeout,
    BadKey,
    BadOption,
    BadTicket,
    BadURL,
    Busy,
    ClientClosed,
    ClientForked,
    CorruptClock,
    CorruptRecord,
    ForeignStore,
    HoldfastError,
    KeyMismatch,
    LeaseLost,
    LimitMismatch,
    Misconfigured,
    MissingDriver,
    NothingPublished,
    OutcomeUnknown,
    Refused,
    StaleFence,
    StoreFull,
    StoreReadOnly,
    TicketRefused,
    Unavailable,
    Unsupported,
    UsageError,
)

if TYPE_CHECKING:
    from holdfast import aio as aio
    from holdfast import fencing as fencing
    from holdfast.api.default import guard
    from holdfast.api.guard import current_lease
    from holdfast.api.info import HolderInfo, LockInfo, PastInfo, WaiterInfo
    from holdfast.api.leases import Lease, Leases
    from holdfast.api.locks import Locks, connect
    from holdfast.api.wants import Want

__version__ = "0.2.0"

__all__ = [
    "AcquireTimeout",
    "BadKey",
    "BadOption",
    "BadTicket",
    "BadURL",
    "Busy",
    "ClientClosed",
    "ClientForked",
    "CorruptClock",
    "CorruptRecord",
    "ForeignStore",
    "HolderInfo",
    "HoldfastError",
    "KeyMismatch",
    "Lease",
    "LeaseLost",
    "Leases",
    "LimitMismatch",
    "LockInfo",
    "Locks",
    "Misconfigured",
    "MissingDriver",
    "NothingPublished",
    "OutcomeUnknown",
    "PastInfo",
    "Refused",
    "StaleFence",
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
    "guard",
]

# These are imported on first use, so that `import holdfast` stays fast in programs that may never
# need a lock. The errors are imported at once: none should have to be imported while it is caught.
_LATER = {
    "HolderInfo": "api.info",
    "Lease": "api.leases",
    "Leases": "api.leases",
    "LockInfo": "api.info",
    "Locks": "api.locks",
    "PastInfo": "api.info",
    "WaiterInfo": "api.info",
    "Want": "api.wants",
    "connect": "api.locks",
    "current_lease": "api.guard",
    "guard": "api.default",
}
_MODULES = ("aio", "events", "fencing")


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:  # `holdfast.aio` works without an import of its own
        return import_module(f"{__name__}.{name}")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
