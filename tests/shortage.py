"""A process that has no file descriptor left."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

# So many are left at first: a few may be open above the new limit, and those count for nothing.
SPARE = 64


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Nothing can be opened meanwhile; what somebody closes can be opened anew, by anybody."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    hoard = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hoard[0] + SPARE, hard))
    try:
        while True:
            try:
                hoard.append(os.dup(hoard[0]))
            except OSError:
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in hoard:
            os.close(descriptor)
