"""Gives back the leases of a client that is closed, or whose program ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from holdfast.core.commands import Free
from holdfast.core.holds import Attempt, Hold
from holdfast.runtime.driver import Driver

# How long `close()` and the end of the program wait.
GIVE_BACK_S = 2.0

logger = logging.getLogger("holdfast")


class GivingBack:
    """Frees holds in the keeper's thread while the closing thread waits.

    The holds have ended before, so that nobody works under them any more. The ttl frees what is not
    given back in time.
    """

    def __init__(self, driver: Driver, ended: Callable[[Hold, str], None]) -> None:
        self._driver = driver
        self._ended = ended
        self._out_of_time = False
        self.done = threading.Event()

    def __call__(self, holds: list[Hold]) -> None:
        """Give these holds back, one after the other. Never raises."""
        try:
            for number, hold in enumerate(holds):
                if self._out_of_time:
                    logger.warning("%d locks were not given back in time", len(holds) - number)
                    break
                self._give_back(hold)
        finally:
            self.done.set()

    def _give_back(self, hold: Hold) -> None:
        attempt = Attempt(hold.key, Free(hold.token), touched=True)
        self._driver.undo((attempt,))
        if not attempt.touched:
            self._ended(hold, "Gave back")

    def wait(self) -> None:
        """Wait until all holds are given back, or the time is up."""
        self.done.wait(GIVE_BACK_S)
        self._out_of_time = True

    async def wait_async(self) -> None:
        """The same on an event loop."""
        if not self.done.is_set():
            import asyncio

            await asyncio.to_thread(self.wait)
