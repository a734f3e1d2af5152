"""No file descriptor is left in this process, for a while."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def no_descriptors(left: int = 0) -> Iterator[None]:
    """Take all descriptors that this process may have, but these few."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open(os.devnull, os.O_RDONLY)
    taken = [probe]
    try:
        # What is open already stays open; nothing with a larger number can be opened.
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(probe + 64, limits[0]), limits[1]))
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(left):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for one in taken:
            os.close(one)
