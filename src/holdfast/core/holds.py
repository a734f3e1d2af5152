"""A claim's state in this process: the attempt to get a grant, and the hold that was granted.

Both are mutable and outlive the generator that works on them, so that an interrupt at any
instruction leaves behind what a clean-up needs to know.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from holdfast.core.commands import Claim, Command, Evict, Free, Granted, Offer, Renew, Take
from holdfast.core.contract import Version
from holdfast.core.records import NEVER, DiscreetState, History, Holder, Micros, Record, Waiter
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
    watchdog: Micros | None = None  # it is lost if its holder gives no sign of life for this long


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
    attempt: int = 0  # the number of the attempt that got it
    alive: Micros = 0  # the last sign of life of the holder's work, for the watchdog
    lapsed: bool = False  # its deadline was seen to have passed
    shared: bool = False  # a ticket for it was given away: another party may keep it alive
    state: State = "held"
    why: str = ""
    # For passing it on inside of the process, see `cohorts`.
    last: int = 0  # the last number of its grant's fences
    unwritten: bool = False  # it was passed on, and the store does not know yet to whom
    contended: bool = False  # somebody waits for it at the store
    turn_began: Micros = 0  # when it was granted
    member: Any = None  # the caller whose turn it is, if it is in a cohort
    # For the runtime, and not used by the core: whom to tell about the hold, and how to learn
    # that nobody refers to its lease any more.
    signals: Any = None
    referent: Any = None
    caller: Any = None  # a weak reference to the thread or task that acquired it

    @property
    def fence(self) -> int:
        """Its fencing number."""
        return self.holder.fence

    @property
    def owner(self) -> str:
        """Who holds it, for people."""
        return self.holder.owner

    def renewal(self, known: Holder | None = None) -> Renew:
        """Returns the command that renews it."""
        return Renew(self.token, known, self.holder if self.unwritten else None)

    def valid(self, now: Micros) -> bool:
        """Whether this is surely ours at this moment. Once it is not, it never is again, not even
        by a renewal whose thread was stopped between reading its clock and coming here."""
        if now >= self.deadline:
            self.lapsed = True
        return self.state == "held" and not self.lapsed

    def extend(self, holder: Holder, sent: Micros) -> None:
        """Note that a renewal which was sent at this moment was done. The fence of a lease never
        changes: not when the store still has that of the lease before it, which was passed on."""
        if holder.fence < self.holder.fence:
            mine = self.holder
            holder = replace(holder, fence=mine.fence, owner=mine.owner, note=mine.note)
        else:
            self.unwritten = False
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

    def was_gone(self, history: History) -> None:
        """Note that the store had nothing of it any more when it was to be released."""
        self.why = self.why_gone(history) or (
            "it was gone when it was to be released: evicted, released elsewhere or expired"
        )
        self.state = "lost"

    def why_gone(self, history: History) -> str:
        """Returns how the grant ended, if the history of its key says so. (Not by its fence: the
        record may not know yet that it was passed on.)"""
        for happening in history or ():
            if happening.since == self.holder.acquired_at and happening.fence <= self.fence:
                if happening.what == "evicted":
                    by = f" by {happening.by}" if happening.by else ""
                    return f"it was evicted{by}{': ' if happening.why else ''}{happening.why}"
                if happening.what == "expired":
                    return "it ran out, and somebody else asked for the lock"
        return ""


def hold_of(
    key: str, granted: Granted, sent: Micros, care: Care, waited: Micros = 0, attempt: int = 0
) -> Hold:
    """Returns the hold of a grant whose write was sent at this moment."""
    holder = granted.holder
    ttl = holder.ttl
    ends = deadline(sent, ttl)
    return Hold(
        key, holder, holder.token, ttl, granted.wanted, sent, sent, ends, care, waited, attempt,
        last=granted.last, contended=bool(granted.wanted), alive=sent,
    )  # fmt: skip


class Attempt(DiscreetState, eq=False, weakref=True):
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
    trouble_since: Micros | None = None  # since when the store fails it
    blocked_by: tuple[Holder, ...] = ()  # who was in the way when it was tried last
    commanded: bool = False  # a whole command had no answer: it may still be on its way
    number: int = 0  # which attempt of this process it is, for its events
    by: Micros = NEVER  # later answers are of no use to the caller
    began: Micros = 0  # when its call began
    history: History = UNSET  # of the key, where the command found nothing of ours
    trace: str = ""  # the trace that the ticket came from, if it says so
    given_up: bool = False  # set from outside: its caller does not wait for it any more

    def forget_writes(self) -> None:
        """Forget all writes but the first and the latest: a claim may wait for weeks."""
        while len(self.sent) > REMEMBERED_WRITES:
            _, oldest, *_ = self.sent
            del self.sent[oldest]

    def sent_at(self, beat: str) -> Micros:
        """Returns when the write that was done was sent; that of the first, if it is forgotten."""
        sent = self.sent.get(beat)
        return next(iter(self.sent.values())) if sent is None else sent

    def saw(self, version: Version, record: Record) -> None:
        """A look showed this. A swap that expected another version was carried out, or never will
        be; one that expected this one may still be on its way. So may a whole command, which
        expects nothing."""
        if version != self.expected and not self.commanded:
            self.unsettled = self.unsettled and self.may_be_done_in(record)

    def shows_in(self, record: Record) -> bool:
        """Whether the record shows a write of ours: the connection may have sent it twice."""
        parties: tuple[Holder | Waiter, ...] = (*record.holders, *record.queue)
        return any(party.beat in self.sent for party in parties)

    def may_be_done_in(self, record: Record) -> bool:
        """Whether the record may be what our command has left: it shows a party that we wrote, or
        the party that we were to take out is gone."""
        command = self.command
        if isinstance(command, Free):
            return all(holder.token != command.token for holder in record.holders)
        if isinstance(command, Evict):
            fences = {holder.fence for holder in record.holders}
            tokens = {waiter.token for waiter in record.queue}
            return not (fences.issuperset(command.fences) and tokens.issuperset(command.waiters))
        return any(holder.beat in self.sent for holder in record.holders)

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
