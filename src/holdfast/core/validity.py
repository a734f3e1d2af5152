"""The arithmetic of time: how long a lease is good for, and who has run out.

Two clocks are at work and they are never compared: the store's, which decides when a
record expires, and each client's own monotonic one. What ties them together:

 1. A request sent at local `m0` read the store's clock as `S`. The reading was taken after
    `m0`, so at local `m` the store shows at most `S.latest + (m - m0)`: `Reading.stamp`.
 2. A write sent at `m` says `expires_at = stamp(m).at + ttl`. The holder trusts it until
    `m + ttl - margin`. At that moment the store shows no more than `expires_at`: the
    store always gives the holder at least as long as the holder gives itself.
 3. A party is dead when the store's clock, read together with its record, is surely
    past its expiry: `earliest > expires_at`.
 4. Where a store has no clock, a party is dead when its (token, beat) was seen unchanged
    for its whole ttl, counted from *after* the reply that first showed it: its own
    deadline counts from before the request that wrote it, so it has passed. It was seen
    unchanged until the last request for it left, not until that request's reply came.
 5. In the same way the store shows at least `S.earliest + (m - m1)` when the answer came at
    `m1`: `stamp(m).reached`. That is the floor of a fence, which must be recent but never ahead
    of the clock: if the record were lost, the next fence could be smaller.
 6. Clocks run at slightly different rates, by at most 1 in `RATE`.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.commands import Stamp
from holdfast.core.contract import Interval
from holdfast.core.records import SECOND, Micros

RATE = 100

# A reading older than this is not carried any further: the doubt would only grow.
READING_GOOD_FOR: Micros = 30 * SECOND
# An answer that took longer than this is a vague reading: the clock was read at some moment while
# it was under way, and a grant could last longer in the store by all of that time.
VAGUE_AFTER: Micros = SECOND


def deadline(sent: Micros, ttl: Micros) -> Micros:
    """Until when a holder may trust a write that it sent at this moment.

    It gives up a little of its ttl, in case its clock is slower than the store's.
    """
    return sent + ttl - ttl // RATE - 1


class Reading(Struct, frozen=True, gc=False):
    """A reading of the store's clock, if the answer had one: when the request that brought it
    was sent, and when the answer came."""

    now: Interval | None
    sent: Micros
    got: Micros

    def stamp(self, m: Micros, beat: str) -> Stamp | None:
        """What a write at local time `m` says of the store's time: what it can show then; None
        if the reading is too old for that to be of use. Another thread's reading may be
        younger than `m`: then it is taken as it is."""
        now, most, least = self.now, m - self.sent, m - self.got
        if now is None or most > READING_GOOD_FOR:
            return None
        if least < 0:
            least = 0
            if most < 0:
                most = 0
        latest = now.latest + most + most // RATE + 1
        return Stamp(latest, beat, True, now.earliest + least - least // RATE)

    def vague(self, m: Micros, by: Micros) -> bool:
        """Whether to look again at local time `m` before a write: the answer took long, and until
        `by` there is time for two more that take as long."""
        took = self.got - self.sent
        return took > VAGUE_AFTER and m + 2 * took < by

    def at(self, m: Micros) -> Interval | None:
        """The same without a write: what the store's clock can show at local time `m`."""
        stamp = self.stamp(m, "")
        return None if stamp is None else Interval(stamp.reached or 0, stamp.at)


UNREAD = Reading(None, 0, 0)
