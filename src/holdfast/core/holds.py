"""A claim's state in this process: the attempt to get a grant, and the hold that was granted.

Both are mutable and outlive the generator that works on them, so that an interrupt at any
instruction leaves behind what a clean-up needs to know.
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
    """How a hold is to be kept once it is granted."""

    keep: bool = True  # renew it in the background
    max_hold: Micros | None = None  # but not for longer than this
    may_release: bool = True
    joined: bool = False  # another party keeps it alive too


class Hold(DiscreetState, eq=False):
    """A grant as its holder knows it. Valid until `deadline` on the own monotonic clock."""

    key: str
    holder: Holder  # as it was written last; the observations keep the same object
    token: str
    ttl: Micros
    wanted: tuple[Waiter, ...]
    acquired: Micros
    renewed: Micros
    deadline: Micros
    care: Care
    waited: Micros = 0  # how long the claim had to wait for it
    lapsed: bool = False  # its deadline was seen to have passed
    shared: bool = False  # a ticket for it was given away: another party may keep it alive
    state: State = "held"
    why: str = ""
    # For the runtime, and not used by the core: whom to tell about the hold, and how to learn
    # that nobody refers to its lease any more.
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
        """Whether this is surely ours at this moment. Once it is not, it never is again, not even
        by a renewal whose thread was stopped between reading its clock and coming here."""
        if now >= self.deadline:
            self.lapsed = True
        return self.state == "held" and not self.lapsed

    def extend(self, holder: Holder, sent: Micros) -> None:
        """Note that a renewal which was sent at this moment was done."""
        self.holder = holder
        self.renewed = max(self.renewed, sent)
        self.deadline = max(self.deadline, deadline(sent, holder.ttl))

    @property
    def only_ours(self) -> bool:
        """Whether it ends for nobody else when it is given back, and was not meant to run out."""
        return self.care.keep and not self.care.joined and not self.shared

    def end(self, state: State, why: str = "") -> bool:
        """Leave the state `held`, for good. Returns False if it had ended before."""
        if self.state != "held":
            return False
        self.why = why
        self.state = state
        self.referent = None
        return True

    def was_gone(self) -> None:
        """Note that the store had nothing of it any more when it was to be released."""
        self.why = "it was gone when it was to be released: evicted, released elsewhere or expired"
        self.state = "lost"


def hold_of(key: str, granted: Granted, sent: Micros, care: Care) -> Hold:
    """Returns the hold of a grant whose write was sent at this moment."""
    holder = granted.holder
    ttl = holder.ttl
    ends = deadline(sent, ttl)
    return Hold(key, holder, holder.token, ttl, granted.wanted, sent, sent, ends, care)


class Attempt(DiscreetState, eq=False, gc=False):
    """One command on its way, from its first write to its reply."""

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
        """Forget all writes but the first and the latest: a claim may wait for weeks."""
        while len(self.sent) > REMEMBERED_WRITES:
            _, oldest, *_ = self.sent
            del self.sent[oldest]

    def sent_at(self, beat: str) -> Micros:
        """Returns when the write that was done was sent; that of the first, if it is forgotten."""
        sent = self.sent.get(beat)
        return next(iter(self.sent.values())) if sent is None else sent

    def saw_version(self, version: Version) -> None:
        """A look showed this version. A swap that expected another one was carried out, or never
        will be; one that expected this one may still be on its way."""
        if version != self.expected:
            self.unsettled = False

    def shows_in(self, record: Record) -> bool:
        """Whether the record shows a write of ours: the connection may have sent it twice."""
        parties: tuple[Holder | Waiter, ...] = (*record.holders, *record.queue)
        return any(party.beat in self.sent for party in parties)

    @property
    def claimed(self) -> str:
        """The token under which a claim gets its grant."""
        assert isinstance(self.command, Claim)
        return self.command.token

    def leftovers(self) -> tuple[str, ...]:
        """Returns the tokens under which this may have left something in the store."""
        command = self.command
        if not self.touched or not isinstance(command, (Claim, Take, Free, Offer)):
            return ()
        return (command.token, command.ticket) if isinstance(command, Offer) else (command.token,)
