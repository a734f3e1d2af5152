"""A module as people write it: a client and guarded functions at module level."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import holdfast
from holdfast import aio

locks = holdfast.connect()
if os.environ.get("TEST_USED"):  # by the module itself, before anything forks
    of_this_process = locks.acquire(f"of process {os.getpid()}", ttl=60)


@locks.guard("job:{number}")
def guarded(number: int) -> tuple[int, str]:
    """Returns who runs it, and under which name."""
    return os.getpid(), holdfast.current_lease().owner


@holdfast.guard("job:{number}")
def guarded_lazily(number: int) -> tuple[int, str]:
    """The same without a client of its own."""
    return os.getpid(), holdfast.current_lease().owner


@aio.guard("job:{number}")
async def guarded_on_a_loop(number: int) -> tuple[int, str]:
    """The same with asyncio."""
    return os.getpid(), holdfast.current_lease().owner


def application(environ: Any, start_response: Callable[..., Any]) -> Iterable[bytes]:
    """A WSGI application. Says who served the request under a lock."""
    process, owner = guarded(1) if environ["PATH_INFO"] == "/guarded" else guarded_lazily(1)
    time.sleep(0.1)  # another worker gets the next request
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{process} {owner}".encode()]
