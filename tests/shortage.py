"""A process that has no file descriptor left."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

# So many are left at first: a few may be open above the new limit, and those count for nothing.
SPARE = 64


@contextmanager
def no_descriptors(left: int = 0) -> Iterator[None]:
    """No more than `left` can be opened meanwhile, and what somebody closes, by anybody."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    hoard = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hoard[0] + SPARE, hard))
    try:
        while True:
            try:
                hoard.append(os.dup(hoard[0]))
            except OSError:
                break
        for _ in range(left):
            os.close(hoard.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in hoard:
            os.close(descriptor)
