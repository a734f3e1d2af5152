"""The two ends of a claim in this process: the attempt to get one, and what was got.

Both are plain mutable state that outlives the generator which works on it, so that an
interrupt at any instruction leaves behind what is needed to clean up.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from holdfast.core.commands import Claim, Command, Free, Granted, Offer, Take
from holdfast.core.contract import Version
from holdfast.core.records import DiscreetState, Holder, Micros, Record, Waiter
from holdfast.core.validity import deadline

State = Literal["held", "lost", "released", "handed over"]

# A grant is renewed this often within its ttl; if renewals fail, danger is told after two thirds.
BEATS_PER_TTL = 3
# Of a claim that waits for weeks, so many writes are remembered.
REMEMBERED_WRITES = 64
# The nonce of a write without a party in it: it needs none.
NO_BEAT = "-"


class Care(Struct, frozen=True, gc=False):
    """How a hold is to be looked after once it is got."""

    keep: bool = True  # renew it in the background
    max_hold: Micros | None = None  # but not for longer than this
    may_release: bool = True
    joined: bool = False  # another party keeps it alive too


class Hold(DiscreetState, eq=False):
    """A grant as its holder knows it. Valid until `deadline` on the own monotonic clock."""

    key: str
    holder: Holder  # as it was written last, so that the witness and we keep one copy, not two
    token: str
    ttl: Micros
    wanted: tuple[Waiter, ...]
    acquired: Micros
    renewed: Micros
    deadline: Micros
    care: Care
    waited: Micros = 0  # how long the claim had to wait for it
    lapsed: bool = False  # somebody saw that its deadline had passed
    shared: bool = False  # a ticket for it was given away: another party may keep it alive
    state: State = "held"
    why: str = ""
    # For a driver, nothing to the core: whom it tells of the hold's fate, and how it learns that
    # nobody refers to the lease any more.
    signals: Any = None
    referent: Any = None

    @property
    def fence(self) -> int:
        """Its fencing number."""
        return self.holder.fence

    @property
    def owner(self) -> str:
        """Who holds it, for people."""
        return self.holder.owner

    def valid(self, now: Micros) -> bool:
        """Whether this is surely ours at this moment. Once it is not, it never is again:
        not even by a renewal whose thread stood still between its clock and this."""
        if now >= self.deadline:
            self.lapsed = True
        return self.state == "held" and not self.lapsed

    def extend(self, holder: Holder, sent: Micros) -> None:
        """A renewal that was sent at this moment went through."""
        self.holder = holder
        self.renewed = max(self.renewed, sent)
        self.deadline = max(self.deadline, deadline(sent, holder.ttl))

    @property
    def only_ours(self) -> bool:
        """Whether it ends for nobody else when it is given back, and was not meant to run out."""
        return self.care.keep and not self.care.joined and not self.shared

    def end(self, state: State, why: str = "") -> bool:
        """Leave `held`, once and for good. False: it had ended before."""
        if self.state != "held":
            return False
        self.why = why
        self.state = state
        self.referent = None
        return True

    def was_gone(self) -> None:
        """The store had nothing left of it when it was to be released."""
        self.why = "it was gone when it was to be released: evicted, released elsewhere or expired"
        self.state = "lost"


def hold_of(key: str, granted: Granted, sent: Micros, care: Care) -> Hold:
    """What a grant gives to the one whose write was sent at this moment."""
    holder = granted.holder
    ttl = holder.ttl
    ends = deadline(sent, ttl)
    return Hold(key, holder, holder.token, ttl, granted.wanted, sent, sent, ends, care)


class Attempt(DiscreetState, eq=False, gc=False):
    """One command on its way, from the first write to the answer."""

    key: str
    command: Command
    next_beat: str = ""  # the nonce of the next write, if it was drawn before
    # When each write was sent, by its beat: the deadline is that of the one that landed.
    sent: dict[str, Micros] = {}  # noqa: RUF012 (msgspec copies it)
    touched: bool = False  # something of ours may be in the store
    unsettled: bool = False  # the outcome of some write is not known
    doubted: bool = False  # it was not known for a while, at least
    expected: Version = None  # what the last swap without an answer had expected to find
    number: int = 0  # which attempt of this process it is, for whoever listens to its events

    def forget_writes(self) -> None:
        """All but the first and the latest: of a claim that waits for weeks they would pile up."""
        while len(self.sent) > REMEMBERED_WRITES:
            _, oldest, *_ = self.sent
            del self.sent[oldest]

    def sent_at(self, beat: str) -> Micros:
        """When the write that landed was sent; not before the first one, if that is forgotten."""
        sent = self.sent.get(beat)
        return next(iter(self.sent.values())) if sent is None else sent

    def saw_version(self, version: Version) -> None:
        """A look showed this version. A swap that expected another one was carried out, or never
        will be; one that expected this one may still be on its way."""
        if version != self.expected:
            self.unsettled = False

    def shows_in(self, record: Record) -> bool:
        """Whether a write of ours landed after all: something below us sent it twice."""
        parties: tuple[Holder | Waiter, ...] = (*record.holders, *record.queue)
        return any(party.beat in self.sent for party in parties)

    @property
    def claimed(self) -> str:
        """The token under which a claim gets its grant."""
        assert isinstance(self.command, Claim)
        return self.command.token

    def leftovers(self) -> tuple[str, ...]:
        """The tokens under which this may have left something in the store."""
        command = self.command
        if not self.touched or not isinstance(command, (Claim, Take, Free, Offer)):
            return ()
        return (command.token, command.ticket) if isinstance(command, Offer) else (command.token,)
