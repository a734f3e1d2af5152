"""Gives back the leases of a client that is closed, or whose program ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from holdfast.core.commands import Free
from holdfast.core.events import Ending
from holdfast.core.holds import Attempt, Hold
from holdfast.core.records import SECOND
from holdfast.observe.sinks import Sinks
from holdfast.runtime import clock
from holdfast.runtime.cleaning import Cleaning
from holdfast.runtime.driver import Driver

# How long `close()` waits for the store. It is to be over within two seconds, and closing
# connections to a server that does not answer takes a part of that.
CLOSE_S = 1.4
# How long the end of the program waits, which is to be over within two seconds, too. Python's own
# end comes after: it goes through all that was imported, and with boto3 that is a lot.
END_S = 1.0
# How much longer sinks have for what they are told last.
LAST_WORDS_S = 0.2

logger = logging.getLogger("holdfast")


class GivingBack:
    """Frees holds in the keeper's thread while the closing thread waits.

    The holds have ended before, so that nobody works under them any more. The ttl frees what is not
    given back in time.
    """

    def __init__(
        self,
        driver: Driver,
        ended: Callable[[Hold, Ending], None],
        cleaning: Cleaning,
        sinks: Sinks,
        within_s: float,
    ) -> None:
        self._driver = driver
        self._ended = ended
        self._cleaning = cleaning
        self._sinks = sinks
        self._until = clock.monotonic() + int(within_s * SECOND)
        self._out_of_time = False
        self.done = threading.Event()

    def __call__(self, holds: list[Hold]) -> None:
        """Give these holds back, one after the other. Never raises."""
        try:
            for number, hold in enumerate(holds):
                if self._out_of_time:
                    logger.warning(
                        "%d locks were not given back in time: their ttl will free them",
                        len(holds) - number,
                    )
                    for late in holds[number:]:
                        self._ended(late, "abandoned")
                    break
                self._give_back(hold)
        finally:
            self.done.set()

    def _give_back(self, hold: Hold) -> None:
        attempt = Attempt(hold.key, Free(hold.token), touched=True)
        self._driver.clean_up((attempt,), self._until)
        self._ended(hold, "abandoned" if attempt.touched else "given back")

    def wait(self) -> None:
        """Wait until all holds are given back, all clean-ups done and the sinks told, or the time
        is up."""
        self.done.wait(self._seconds_left())
        self._out_of_time = True
        self._cleaning.finish(self._until)
        self._close_sinks()

    def _close_sinks(self) -> None:
        self._sinks.close(self._seconds_left(LAST_WORDS_S))

    def _seconds_left(self, more: float = 0.0) -> float:
        return max(0.0, (self._until - clock.monotonic()) / SECOND + more)

    async def wait_async(self) -> None:
        """The same on an event loop."""
        if not (self.done.is_set() and self._sinks.idle) or self._cleaning.busy():
            from holdfast.runtime.beside import in_thread

            await in_thread(self.wait)
        else:
            self._close_sinks()  # nothing to wait for
