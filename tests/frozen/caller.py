"""A program that uses a store until its server freezes, and then measures its calls.

It prints "ready", waits for a line, and prints one line of JSON for each call: [call, seconds, what
was promised, what came of it]. Then it prints "done", waits for another line, and ends with what it
holds; or without anything, if its work is "idle". The last two lines say when its end began, and
when Python's own end did, each with the processor time so far.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


@atexit.register
def _python_ends() -> None:
    """Called last, because it is registered first: after this, only Python's own end is left."""
    print(json.dumps([time.monotonic(), time.process_time()]), flush=True)


import holdfast  # noqa: E402
from holdfast import aio  # noqa: E402

SOON_S = 0.3


class Caller:
    """Makes the calls of one face, after it has taken some locks."""

    def __init__(self, url: str, face: str, request_timeout: float) -> None:
        self._runner = asyncio.Runner() if face == "async" else None
        self._connect: Any = aio.connect if self._runner else holdfast.connect
        self._options = {"request_timeout": request_timeout, "ttl": 120}
        self._url, self._face = url, face  # both faces use one store at once
        self._promised = request_timeout
        self.locks = self.run(self._open)

    def use_once(self) -> None:
        """Take a lock and free it, so that there are connections, and then do nothing."""
        self.run(self._acquire("idle").release)

    def prepare(self) -> None:
        """Take what the calls need, and what is still held when the program ends."""
        self.left_open = self.run(self._open)
        self._leases = {name: self._acquire(name) for name in ("release", "with", "close")}
        self._with = self._leases["with"]
        self.run(self._with.__aenter__ if self._runner else self._with.__enter__)
        self._kept = self.run(lambda: self.left_open.acquire(f"{self._face}/exit"))

    def run(self, call: Callable[[], Any]) -> Any:
        """Make a call, and wait for it."""
        if self._runner is None:
            return call()

        async def main() -> Any:
            outcome = call()
            return await outcome if hasattr(outcome, "__await__") else outcome

        return self._runner.run(main())

    def _open(self) -> Any:
        return self._connect(self._url, **self._options)

    def _acquire(self, name: str) -> Any:
        return self.run(lambda: self.locks.acquire(f"{self._face}/{name}"))

    # --- the calls --------------------------------------------------------------------------

    def measure(self) -> None:
        """Make all calls, and print how long they took."""
        locks, limit = self.locks, self._promised
        leave = self._with.__aexit__ if self._runner else self._with.__exit__
        self._print("Ctrl-C", 0, self._interrupted)
        if self._runner is not None:
            self._print("cancel", 0, lambda: self.run(self._cancelled))
            self._print("asyncio.timeout(1)", 1, lambda: self.run(self._timed_out))
        self._print("lease.check()", 0, self._leases["close"].check)
        self._print("try_acquire", limit, lambda: self.run(lambda: locks.try_acquire("a")))
        self._print("timeout=0", limit, lambda: self.run(lambda: locks.acquire("b", timeout=0)))
        self._print("timeout=1", 1, lambda: self.run(lambda: locks.acquire("b", timeout=1)))
        self._print("show", limit, lambda: self.run(lambda: locks.show("a")))
        self._print("holders", limit, lambda: self.run(self._holders))
        self._print("release", limit, lambda: self.run(self._leases["release"].release))
        self._print("end of with", limit, lambda: self.run(lambda: leave(None, None, None)))
        self._print("close", 2, lambda: self.run(locks.close))

    def _print(self, name: str, promised: float, call: Callable[[], Any]) -> None:
        began = time.monotonic()
        try:
            at = call()
            outcome = "returned"
        except BaseException as trouble:
            at, outcome = None, type(trouble).__name__
        took = time.monotonic() - (at if isinstance(at, float) else began)
        print(json.dumps([name, took, promised, outcome]), flush=True)

    def _holders(self) -> Any:
        if self._runner is None:
            return list(self.locks.holders())

        async def listed() -> list[Any]:
            return [holder async for holder in self.locks.holders()]

        return listed()

    def _interrupted(self) -> float:
        """Returns when Ctrl-C was pressed."""
        pressed = []

        def press() -> None:
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(SOON_S, press).start()
        try:
            self._acquire("interrupted")
        except KeyboardInterrupt:
            return float(pressed[0])
        raise AssertionError("it was not interrupted")

    async def _cancelled(self) -> float:
        """Returns when the task was cancelled."""
        task = asyncio.ensure_future(self.locks.acquire(f"{self._face}/cancelled"))
        await asyncio.sleep(SOON_S)
        at = time.monotonic()
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        return at

    async def _timed_out(self) -> None:
        async with asyncio.timeout(1):
            await self.locks.acquire(f"{self._face}/timed out")


def main(url: str, face: str, request_timeout: str, work: str) -> None:
    """Use the store until it is frozen, then measure, and end without closing everything."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    caller = Caller(url, face, float(request_timeout))
    if work == "idle":
        caller.use_once()
    else:
        caller.prepare()
    print("ready", flush=True)
    sys.stdin.readline()
    if work != "idle":
        caller.measure()
    print("done", flush=True)
    sys.stdin.readline()
    print(json.dumps([time.monotonic(), time.process_time()]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
