"""Look at a lease without taking part in it."""

from __future__ import annotations

import logging

from holdfast.dropin.mops_lock.lease_file import LEASE_DIRNAME, LEASE_FILE, join, open_lease_file
from holdfast.dropin.mops_lock.lease_format import LeaseContents, decode

logger = logging.getLogger("holdfast")


def lease_uri_for(memo_uri: str) -> str:
    """Returns the URI of the lease of an invocation."""
    return join(memo_uri, LEASE_DIRNAME, LEASE_FILE)


def read_lease(memo_uri: str) -> LeaseContents | None:
    """Returns the lease of an invocation; None if there is none that can be read. Never raises."""
    try:
        file = open_lease_file(join(memo_uri, LEASE_DIRNAME))
        found = file.read()
        return None if found is None else decode(found.body, file.uri)
    except Exception:
        logger.debug("The lease of %s cannot be read", memo_uri, exc_info=True)
        return None
