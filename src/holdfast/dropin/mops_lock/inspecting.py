"""Look at a lease without taking part in it."""

from __future__ import annotations

import logging

from holdfast.dropin.mops_lock.contents import LeaseContents, decode
from holdfast.dropin.mops_lock.slots import LEASE_DIRNAME, LEASE_FILE, join, open_slot

logger = logging.getLogger("holdfast")


def lease_uri_for(memo_uri: str) -> str:
    """Where the lease of an invocation is."""
    return join(memo_uri, LEASE_DIRNAME, LEASE_FILE)


def read_lease(memo_uri: str) -> LeaseContents | None:
    """The lease of an invocation; None if there is none that can be read. Never raises."""
    try:
        slot = open_slot(join(memo_uri, LEASE_DIRNAME))
        found = slot.read()
        return None if found is None else decode(found.body, slot.uri)
    except Exception:
        logger.debug("The lease of %s cannot be read", memo_uri, exc_info=True)
        return None
