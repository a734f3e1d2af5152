"""How long a call waits: for a lock, and for a store that is in trouble meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.effects import NOW, Emit, Sleep, Steps
from holdfast.core.events import StoreTrouble, Waiting
from holdfast.core.records import SECOND, Holder, Micros, Waiter, anonymous
from holdfast.core.rules import Party
from holdfast.core.steps import FIRST_PAUSE, LONGEST_PAUSE
from holdfast.errors import AcquireTimeout, Busy, HoldfastError


class BoundedWait(Struct, eq=False, gc=False):
    """The state of a wait: since when, until when, and what was last told about it."""

    key: str
    owner: str
    timeout: Micros | None  # None: as long as it takes; 0: do not wait
    store_patience: Micros  # how long the store may be in trouble
    started: Micros
    trouble_since: Micros | None = None
    pause: Micros = FIRST_PAUSE
    told: tuple[int, ...] | None = None  # the fences of the holders told of last
    attempt_number: int = 0  # of the claim that waits

    @property
    def ends_at(self) -> Micros | None:
        """Returns when the caller's timeout is over; None: never."""
        return None if self.timeout is None else self.started + self.timeout

    def out_of_time(self, now: Micros) -> bool:
        """Whether the caller's timeout is over."""
        ends_at = self.ends_at
        return ends_at is not None and now >= ends_at

    def waiting(
        self,
        holders: Sequence[Holder],
        ahead: Sequence[Waiter],
        more: int,
        now: Micros,
        frees_at: Micros | None,
    ) -> Waiting:
        """Returns the event to emit."""
        fences = tuple(holder.fence for holder in holders)
        news, self.told = fences != self.told, fences
        return Waiting(
            self.key,
            self.owner,
            tuple(anonymous(holder) for holder in holders),
            tuple(anonymous(waiter) for waiter in ahead),
            now - self.started,
            None if frees_at is None else max(0, frees_at - now),
            news,
            more,
            self.attempt_number,
        )

    def ride_out_steps(self, trouble: HoldfastError, doing: str) -> Steps[None]:
        """Pause before the store is tried again, or raise if there is no time left for it."""
        now = yield from NOW
        if self.trouble_since is None:
            self.trouble_since, self.pause = now, FIRST_PAUSE
        give_up_at = self.trouble_since + self.store_patience
        ends_at = self.ends_at
        if ends_at is not None:
            give_up_at = min(give_up_at, ends_at)
        if now + self.pause >= give_up_at:
            raise trouble
        yield from Emit(StoreTrouble(self.key, str(trouble), doing))
        yield from Sleep(self.pause)
        self.pause = min(2 * self.pause, LONGEST_PAUSE)

    def not_free(self, holders: Sequence[Holder], places: int) -> Busy:
        """Returns what to raise when the time is over and the lock is not free."""
        who = blocking(holders, places)
        shown = [anonymous(holder) for holder in holders]
        if self.timeout == 0:
            return Busy(f"{self.key!r} is {who}.", key=self.key, holders=shown)
        seconds = (self.timeout or 0) / SECOND
        return AcquireTimeout(
            f"{self.key!r} was not free within {seconds:g} s: it is {who}.",
            key=self.key,
            holders=shown,
        )


def blocking(holders: Sequence[Holder], waiting: int) -> str:
    """Returns who is in the way, as text."""
    if not holders:
        return f"kept for the {waiting} waiting ahead"
    ahead = f", with {waiting} waiting ahead" if waiting else ""
    return f"held by {names(holders)}{ahead}"


def names(parties: Sequence[Party]) -> str:
    """Returns the owners of these parties, each once, as text."""
    return ", ".join(sorted({party.owner for party in parties}))
