"""Blocking calls beside an event loop.

`asyncio.run` and the end of the program wait for every call of `asyncio.to_thread`, also for one
that nobody waits for any more, because it hangs. They do not wait for these.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from holdfast.runtime.pool import settle

R = TypeVar("R")


async def in_thread(call: Callable[[], R]) -> R:
    """Make a call in a daemon thread of its own, in the context of the caller. So no call waits for
    others that hang."""
    future: Future[R] = Future()
    call = partial(contextvars.copy_context().run, call)
    threading.Thread(
        target=settle, args=(future, call), name="holdfast-beside", daemon=True
    ).start()
    return await asyncio.wrap_future(future)
