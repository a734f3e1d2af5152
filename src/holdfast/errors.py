"""Every error Holdfast raises, sorted by who is to blame and how sure we are.

    HoldfastError
    ├── UsageError        the caller's mistake; nothing was done
    ├── Refused           surely not done: somebody else has the lock, or the lease is gone
    ├── Unavailable       surely not done: the store did not take the request; try again
    ├── Misconfigured     surely not done: the store cannot be used as it is; fix it first
    ├── OutcomeUnknown    the request left, and no answer says whether it was done
    ├── LeaseLost         the lease was yours, and no longer is
    ├── StaleFence        the same, said by the target of a write: it has seen a later holder
    └── NothingPublished  once(): the maker has returned, and there is no result

The docstring of a class is its default message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.records import Holder


class HoldfastError(Exception):
    """Something went wrong in Holdfast."""

    def __init__(self, message: str | None = None) -> None:
        # A docstring may have several lines; a message, which goes into logs, has one.
        super().__init__(message or " ".join((self.__doc__ or "").split()))


# --- the caller's mistake ---------------------------------------------------------------


class UsageError(HoldfastError, ValueError):
    """Holdfast was called in a way that cannot work."""


class BadKey(UsageError):
    """A key is a non-empty string of at most 512 bytes in UTF-8."""


class BadOption(UsageError):
    """An option has a value that cannot work."""


class LimitMismatch(UsageError):
    """Everyone who counts permits on a key must name the same limit."""


class BadTicket(UsageError):
    """This is not a Holdfast ticket, or a part of it is missing: pass it on whole."""


class BadURL(UsageError):
    """This is not a store URL that Holdfast understands."""


class MissingDriver(UsageError, ImportError):
    """A library that this needs is not installed: the message names the extra that brings it."""


class ClientClosed(UsageError):
    """This client was closed: call holdfast.connect() again."""


class ClientForked(UsageError):
    """This call began, or this store was opened, before the process was forked, and the child has
    nothing of its parent's: call holdfast.connect() in the child process."""


class Unsupported(UsageError):
    """This store cannot do that."""


class KeyMismatch(UsageError):
    """What is to be written is guarded by the fences of another key."""


# --- surely not done --------------------------------------------------------------------


class Refused(HoldfastError):
    """The claim was refused; nothing was changed."""

    def __init__(
        self, message: str | None = None, *, key: str = "", holders: Sequence[Holder] = ()
    ) -> None:
        super().__init__(message)
        self.key = key
        self.attempt = 0  # of which attempt in `holdfast.events` this is the end
        self.holders = tuple(holders)  # who held the lock instead when the store was asked


class Busy(Refused):
    """Somebody else holds the lock."""


class AcquireTimeout(Busy, TimeoutError):
    """The lock was not free within the time given."""


class TicketRefused(Refused):
    """The lease of this ticket is gone: it was taken, released, evicted or ran out."""


class Unavailable(HoldfastError):
    """The store did not take the request; nothing was changed. Try again."""


class StoreFull(Unavailable):
    """The store has no room left: free some space, then try again."""


class Misconfigured(HoldfastError):
    """The store cannot be used as it is."""


class ForeignStore(Misconfigured):
    """What is at this address was not made by Holdfast, and is left alone."""


class StoreReadOnly(Misconfigured):
    """The store can be read but not written."""


class CorruptRecord(Misconfigured):
    """A record in the store cannot be read, and is left alone."""

    def __init__(self, message: str | None = None, *, key: str = "", newer: bool = False) -> None:
        super().__init__(message)
        self.key = key
        self.newer = newer  # a later release wrote it: only a later release may replace it


class CorruptClock(Misconfigured):
    """The clock that a store keeps for all its clients cannot be read, and nobody can tell who
    still holds a lock."""


# --- not sure, or no longer -------------------------------------------------------------


class OutcomeUnknown(HoldfastError):
    """The request left, and no answer came back: it may have been done or not."""


class LeaseLost(HoldfastError):
    """The lease is no longer yours: stop writing what it protects."""

    def __init__(self, message: str | None = None, *, key: str = "", why: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.why = why  # the reason alone, for use in another message


class StaleFence(HoldfastError):
    """A later holder of the lock has written here; nothing was written: stop."""

    def __init__(
        self,
        message: str | None = None,
        *,
        key: str = "",
        fence: int = 0,
        remembered: int | None = None,
    ) -> None:
        super().__init__(message)
        self.key = key
        self.fence = fence  # the one that came
        self.remembered = remembered  # the one that was there; None: it is not known


class NothingPublished(HoldfastError):
    """make() has returned, and find() finds nothing: make() must publish its result where find()
    looks for it."""
