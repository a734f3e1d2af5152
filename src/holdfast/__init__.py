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

if TYPE_CHECKING:
    from holdfast import aio as aio
    from holdfast.api.guard import current_lease
    from holdfast.api.info import HolderInfo, LockInfo, WaiterInfo
    from holdfast.api.leases import Lease, Leases
    from holdfast.api.locks import Locks, connect
    from holdfast.api.wants import Want

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
    "CorruptClock",
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

# These are imported on first use, so that `import holdfast` stays fast in programs that may never
# need a lock. The errors are imported at once: none should have to be imported while it is caught.
_LATER = {
    "HolderInfo": "api.info",
    "Lease": "api.leases",
    "Leases": "api.leases",
    "LockInfo": "api.info",
    "Locks": "api.locks",
    "WaiterInfo": "api.info",
    "Want": "api.wants",
    "connect": "api.locks",
    "current_lease": "api.guard",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "aio":  # `holdfast.aio` works without an import of its own
        return import_module(f"{__name__}.aio")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "aio"})
