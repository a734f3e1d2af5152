"""Processes of one machine that cannot wake each other, as if each were on a machine of its own.

On some stores whoever frees a lock wakes waiters of the same machine by datagrams. Most users have
several machines, or containers with a network of their own each, where nothing of that arrives.
"""

from __future__ import annotations

import os
from functools import cache

# Where a datagram wakes those who wait on the same machine.
STORES = frozenset({"sqlite", "file", "postgresql", "mysql"})


@cache
def be_apart() -> None:
    """From now on the sockets of this process have names that no other process knows."""
    from holdfast.stores.waiting import local_wakeups

    address_of = local_wakeups.address_of
    local_wakeups.address_of = lambda token: address_of(f"{os.getpid()} {token}")
