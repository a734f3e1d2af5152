"""How long a call waits: for a lock, and for a store that is in trouble meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from holdfast.core.contract import Found, Version
from holdfast.core.effects import NOW, Emit, Sleep, Steps, Wait
from holdfast.core.events import Party, StoreTrouble, Tried, Waiting, party, seconds
from holdfast.core.records import NEVER, SECOND, Holder, Micros, Waiter, anonymous
from holdfast.core.steps import FIRST_PAUSE, LONGEST_PAUSE
from holdfast.errors import AcquireTimeout, Busy, HoldfastError, Unavailable

# By default, a wait that lasts longer than this is worth a line in the log.
LONG_WAIT: Micros = 10 * SECOND
# By default, how long one request may take; also a whole call that does not wait for a lock.
REQUEST_TIMEOUT: Micros = 5 * SECOND
SHORTEST_WAIT: Micros = 1000
# A claim is tried for the last time when its timeout is over. The answer to that may take so long.
LAST_TRY: Micros = 400_000


def answers_by(started: Micros, timeout: Micros | None, request_timeout: Micros) -> Micros:
    """Returns by when the answers must be there that a call with this timeout can use."""
    if timeout is None:
        return NEVER
    return started + (timeout + LAST_TRY if timeout else request_timeout)


def sent_by(by: Micros, now: Micros, request_timeout: Micros) -> Micros:
    """Returns by when the store must answer a request that is sent now, for a caller that needs
    the answer `by` then."""
    if now >= by:
        raise Unavailable("The time for this call was over before the store could be asked.")
    return min(by, now + request_timeout)


class BoundedWait(Struct, eq=False, gc=False):
    """The state of a wait: since when, until when, and what was last told about it."""

    key: str
    owner: str
    timeout: Micros | None  # None: as long as it takes; 0: do not wait
    store_patience: Micros | None  # how long the store may be in trouble; None: for ever
    started: Micros
    trouble_since: Micros | None = None
    pause: Micros = FIRST_PAUSE
    told: tuple[int, ...] | None = None  # the fences of the holders told of last
    attempt_number: int = 0  # of the claim that waits
    request_timeout: Micros = REQUEST_TIMEOUT
    long_wait: Micros | None = LONG_WAIT  # when to tell that it is a long wait; None: never

    @property
    def ends_at(self) -> Micros | None:
        """Returns when the caller's timeout is over; None: never."""
        return None if self.timeout is None else self.started + self.timeout

    @property
    def long_at(self) -> Micros | None:
        """Returns when it becomes a long wait; None: never, or it was told."""
        return None if self.long_wait is None else self.started + self.long_wait

    @property
    def answers_by(self) -> Micros:
        """Returns by when an answer must be there to be of use."""
        return answers_by(self.started, self.timeout, self.request_timeout)

    def out_of_time(self, now: Micros) -> bool:
        """Whether the caller's timeout is over."""
        ends_at = self.ends_at
        return ends_at is not None and now >= ends_at

    def waiting(
        self,
        holders: Sequence[Holder],
        ahead: Sequence[Waiter],
        more: int,
        frees_at: Micros | None,
        now: Micros,
    ) -> Waiting:
        """Returns the event to emit."""
        fences = tuple(holder.fence for holder in holders)
        news, self.told = fences != self.told, fences
        long = self.long_at is not None and now >= self.long_at
        if long:
            self.long_wait = None  # told once
        return Waiting(
            self.key,
            self.owner,
            tuple(party(holder) for holder in holders),
            tuple(party(waiter) for waiter in ahead),
            seconds(now - self.started),
            None if frees_at is None else seconds(max(0, frees_at - now)),
            news,
            more,
            self.attempt_number,
            long,
        )

    def wait_steps(
        self,
        version: Version,
        token: str,
        now: Micros,
        wakes_at: Micros,
        waiting: Callable[[Micros], Waiting],
    ) -> Steps[Found]:
        """Wait until the store notifies, until `wakes_at` or until the time is over. On the way,
        tell when it has become a long wait: the store need not be asked again for that."""
        if self.ends_at is not None:
            wakes_at = min(wakes_at, self.ends_at)
        long_at = self.long_at
        if long_at is not None and now < long_at < wakes_at:
            found = yield from Wait(self.key, version, token, long_at - now)
            now = yield from NOW
            if found is not None or now < long_at:
                return found
            yield from Emit(waiting(now))
        at_most = max(SHORTEST_WAIT, wakes_at - now)
        return (yield from Wait(self.key, version, token, at_most))

    def ride_out_steps(self, trouble: HoldfastError, doing: Tried) -> Steps[None]:
        """Pause before the store is tried again, or raise if there is no time left for it."""
        now = yield from NOW
        if self.trouble_since is None:
            self.trouble_since, self.pause = now, FIRST_PAUSE
        again = now + self.pause < self._gives_up_at(self.trouble_since)
        # Without a cause it did not come from the store: the caller's time was over.
        if again or trouble.__cause__ is not None:
            yield from Emit(StoreTrouble(self.key, str(trouble), doing, again))
        if not again:
            raise trouble
        yield from Sleep(self.pause)
        self.pause = min(2 * self.pause, LONGEST_PAUSE)

    def _gives_up_at(self, trouble_since: Micros) -> Micros:
        patience, ends_at = self.store_patience, self.ends_at
        return min(
            NEVER if patience is None else trouble_since + patience,
            NEVER if ends_at is None else ends_at,
        )

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


def blocking(holders: Sequence[Party | Holder], waiting: int) -> str:
    """Returns who is in the way, as text."""
    if not holders:
        return f"kept for the {waiting} waiting ahead"
    ahead = f", with {waiting} waiting ahead" if waiting else ""
    return f"held by {names(holders)}{ahead}"


def names(parties: Sequence[Party | Holder | Waiter]) -> str:
    """Returns the owners of these parties, each once, as text."""
    return ", ".join(sorted({party.owner for party in parties}))
