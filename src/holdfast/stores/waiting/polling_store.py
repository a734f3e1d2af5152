"""A store whose waiting calls are notified by a poller."""

from __future__ import annotations

from typing import Protocol

from holdfast.core.contract import Facts, Version
from holdfast.stores.waiting.handles import Notify, NotifyingStore, WaitHandle, WaitHandles

# The facts of such a store across a network. It gives its own name, its clock's doubt and caveats.
POLLED = Facts(
    name="",
    linearizable=True,
    clock="store",
    reach="network",
    wakeup="poll",
    durable=True,
)


class PollsForWaiters(Protocol):
    """What looks at the keys that somebody waits for, such as `poller.Poller`."""

    handles: WaitHandles

    def add(self, handle: WaitHandle) -> None: ...
    def discard(self, handle: WaitHandle) -> None: ...
    def close(self) -> None: ...


class PollingStore(NotifyingStore):
    """Has a poller that looks at the keys that somebody waits for."""

    _poller: PollsForWaiters

    def register_wait(self, key: str, version: Version, token: str, notify: Notify) -> WaitHandle:
        """Notify when a look finds that the key may have changed."""
        handle = WaitHandle(key, version, token, notify)
        try:
            self._poller.add(handle)
        except BaseException:  # a signal handler may raise, and nobody else knows of this handle
            self._poller.discard(handle)
            raise
        return handle

    def cancel_wait(self, handle: WaitHandle) -> None:
        """Stop polling for this handle."""
        self._poller.discard(handle)
