"""A store whose waiting calls are notified by a poller."""

from __future__ import annotations

from holdfast.core.contract import Facts, Version
from holdfast.stores.waiting.handles import NotifyingStore, Ring, WaitHandle
from holdfast.stores.waiting.poller import Poller

# The facts of such a store across a network. It gives its own name, its clock's doubt and caveats.
POLLED = Facts(
    name="",
    linearizable=True,
    clock="store",
    reach="network",
    wakeup="poll",
    durable=True,
)


class PollingStore(NotifyingStore):
    """Has a poller that looks at the keys that somebody waits for."""

    _poller: Poller

    def sleep(self, key: str, version: Version, token: str, ring: Ring) -> WaitHandle:
        """Ring when a look finds a change."""
        handle = WaitHandle(key, version, token, ring)
        self._poller.add(handle)
        return handle

    def unsleep(self, handle: WaitHandle) -> None:
        """Stop polling for this handle."""
        self._poller.discard(handle)
