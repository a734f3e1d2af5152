"""The asyncio face: the same names as `holdfast`, awaited.

from holdfast import aio

locks = aio.connect()
async with locks.acquire("pipeline:orders", ttl=60) as lease:
    await load(fence=lease.fence)
"""

from holdfast.api.default_async import guard
from holdfast.api.leases_async import Lease, Leases
from holdfast.api.locks_async import Locks, connect
from holdfast.api.wants import Want

__all__ = ["Lease", "Leases", "Locks", "Want", "connect", "guard"]
