"""What happens to a client's attempts and leases. Public as `holdfast.events`.

Times are in seconds. No event carries a token or a ticket. Fields are only ever appended, with a
default, so that a sink which reads them by position goes on working.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.core.records import SECOND, Holder, Micros, Mode, Note, Waiter

Why = Literal["busy", "timeout", "cancelled", "error"]
How = Literal["acquired", "joined", "taken"]
Ending = Literal["released", "left", "given back", "abandoned"]
Asked = Literal["load", "swap", "amend", "apply", "scan"]
Tried = Literal[
    "acquire", "look at", "renew", "release", "clean up", "use a ticket", "hand over", "evict"
]
SinkFault = Literal["raised", "slow", "dropped"]


class Party(Struct, frozen=True, gc=False):
    """A holder, or somebody who waits.

    owner  who, as they call themselves
    mode   `exclusive`, `shared` or `counted`
    fence  a holder's fencing number; None for somebody who waits
    since  since when they hold or wait, in seconds since 1970 on the store's clock
    note   the note of a holder
    """

    owner: str
    mode: Mode
    fence: int | None
    since: float
    note: Note = {}


class Started(Struct, frozen=True, gc=False):
    """An attempt begins: somebody asks for a lock, or comes with a ticket.

    `Acquired` or `GaveUp` follows with the same `attempt`.

    owner    who asks; empty for a ticket from `share()`, whose owner is not known yet
    mode     `exclusive`, `shared` or `counted`
    attempt  the number of this attempt, counted from 1 in this process
    trace    the trace context (W3C traceparent) that came with a ticket, if any
    """

    key: str
    owner: str
    mode: Mode
    attempt: int
    trace: str = ""


class Waiting(Struct, frozen=True, gc=False):
    """An attempt must wait, or would have to. Sent again each time it goes on waiting.

    holders   who holds the lock
    ahead     the first of those who are before it in the queue
    waited    for how long it has waited so far
    frees_in  when the first holder runs out unless it is renewed; if there is none, when the first
              of those ahead does; None if that is not known
    news      whether the holders have changed since the last time
    more      how many more are ahead than `ahead` shows
    attempt   0 for `wait_until_free`, which asks for nothing
    long      whether it has just become a long wait (`connect(long_wait=…)`)
    own       `thread` or `task` if one of the holders is the one that waits: it waits for itself
    """

    key: str
    owner: str
    holders: tuple[Party, ...]
    ahead: tuple[Party, ...]
    waited: float
    frees_in: float | None
    news: bool = True
    more: int = 0
    attempt: int = 0
    long: bool = False
    own: str = ""


class Acquired(Struct, frozen=True, gc=False):
    """An attempt ended with a lease. All events of that lease carry the same `attempt`.

    fence   its fencing number; a party that joins a lease has the lease's fence
    waited  from `Started` to the grant
    how     `acquired`; with a ticket `joined` (share) or `taken` (hand-over)
    """

    key: str
    owner: str
    fence: int
    mode: Mode
    waited: float = 0.0
    how: How = "acquired"
    attempt: int = 0


class GaveUp(Struct, frozen=True, gc=False):
    """An attempt ended without a lease.

    why     `busy` (it was not to wait), `timeout`, `cancelled` (also Ctrl-C) or `error`
    waited  since `Started`
    error   the class of what was raised, such as `Unavailable`
    """

    key: str
    owner: str
    why: Why
    attempt: int
    waited: float = 0.0
    error: str = ""


class Skipped(Struct, frozen=True, gc=False):
    """A guarded function did not run, because of the `GaveUp` with the same `attempt`.

    function  its qualified name
    """

    key: str
    owner: str
    function: str
    attempt: int = 0


class Renewed(Struct, frozen=True, gc=False):
    """A lease was renewed.

    remaining  until when it is surely valid now
    """

    key: str
    owner: str
    fence: int
    remaining: float
    attempt: int = 0


class InDanger(Struct, frozen=True, gc=False):
    """Renewals have failed for two thirds of the ttl. `OutOfDanger` or the lease's end follows.

    remaining  when the lease will be lost
    """

    key: str
    owner: str
    fence: int
    remaining: float
    attempt: int = 0


class OutOfDanger(Struct, frozen=True, gc=False):
    """A renewal went through again."""

    key: str
    owner: str
    fence: int
    attempt: int = 0


class Wanted(Struct, frozen=True, gc=False):
    """Somebody waits for a lease of ours, and nobody did when it was renewed before.

    waiters  the first of them, in the order of their turn
    """

    key: str
    owner: str
    fence: int
    waiters: tuple[Party, ...]
    attempt: int = 0


class Released(Struct, frozen=True, gc=False):
    """A lease ended by its holder's will.

    held_for  how long it was held
    how       `released`; `left` by one of several parties; `given back` when its client was
              closed, or because `acquire_all` could not get the other keys; `abandoned` if the
              store could not be told in time: it is tried for longer, and its ttl frees it
    """

    key: str
    owner: str
    fence: int
    held_for: float
    how: Ending = "released"
    attempt: int = 0


class HandedOver(Struct, frozen=True, gc=False):
    """A lease ended because it was offered to whoever brings the ticket."""

    key: str
    owner: str
    fence: int
    held_for: float
    attempt: int = 0


class Lost(Struct, frozen=True, gc=False):
    """A lease ended against its holder's will.

    why       in words
    held_for  how long it was held
    """

    key: str
    owner: str
    fence: int
    why: str
    held_for: float = 0.0
    attempt: int = 0


class Evicted(Struct, frozen=True, gc=False):
    """This client evicted holders.

    holders   whom; nobody, if there was nobody to evict
    operator  who did it
    reason    why
    """

    key: str
    holders: tuple[Party, ...]
    operator: str = ""
    reason: str = ""


class StoreTrouble(Struct, frozen=True, gc=False):
    """The store failed.

    error  in words; may contain what a server says
    doing  what was tried: `acquire`, `look at`, `renew`, `release`, `clean up`, `use a ticket`,
           `hand over` or `evict`
    again  whether it is tried again; if not, the call fails, or the ttl frees the lock
    """

    key: str
    error: str
    doing: Tried
    again: bool = True


class StoreAway(Struct, frozen=True, gc=False):
    """The store went away: it failed, and it had not before. `StoreBack` follows.

    error  what failed, in words
    """

    error: str
    key: str = ""


class StoreBack(Struct, frozen=True, gc=False):
    """The store answers again, or nobody asks it any more.

    away_for  since `StoreAway`
    closed    whether it did not come back: its client was closed
    """

    away_for: float
    key: str = ""
    closed: bool = False


class StoreAnswered(Struct, frozen=True, gc=False):
    """One request to the store ended. Only for sinks with a true attribute `requests`.

    asked  `load`, `swap`, `amend` (look and write in one), `apply` (a whole command) or `scan`
    took   how long it took
    error  the class of what was raised; empty if the store answered
    many   how many locks the request was about; more than one if renewals went together
    """

    asked: Asked
    took: float
    error: str = ""
    many: int = 1
    key: str = ""


class SinkTrouble(Struct, frozen=True, gc=False):
    """Another sink failed. It is not told of this itself.

    sink   its name
    fault  `raised`, `slow` (it took longer than a second) or `dropped` (events were dropped,
           because too many were waiting for it)
    """

    sink: str
    fault: SinkFault
    key: str = ""


Event: TypeAlias = (
    Started
    | Waiting
    | Acquired
    | GaveUp
    | Skipped
    | Renewed
    | InDanger
    | OutOfDanger
    | Wanted
    | Released
    | HandedOver
    | Lost
    | Evicted
    | StoreTrouble
    | StoreAway
    | StoreBack
    | StoreAnswered
    | SinkTrouble
)


def party(one: Holder | Waiter) -> Party:
    """Returns a party as it is shown to sinks: without its token."""
    if isinstance(one, Holder):
        return Party(one.owner, one.mode, one.fence, seconds(one.acquired_at), one.note)
    return Party(one.owner, one.mode, None, seconds(one.since))


def seconds(span: Micros) -> float:
    """Returns microseconds as seconds."""
    return span / SECOND
