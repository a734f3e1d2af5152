"""Tickets at work: joining a lease, taking one over, and offering one to the next party."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core import rules
from holdfast.core.commands import Granted, Renew
from holdfast.core.effects import Steps
from holdfast.core.holds import Attempt, Care, Hold, hold_of
from holdfast.core.observations import Observations
from holdfast.core.records import SECOND, Holder, Micros, anonymous
from holdfast.core.retrying import retry_command_steps
from holdfast.core.steps import look_steps
from holdfast.core.waiting import names
from holdfast.errors import HoldfastError, LeaseLost, TicketRefused, Unavailable


def enter_steps(
    observations: Observations, attempt: Attempt, care: Care, until: Micros, fence: int = 0
) -> Steps[Hold]:
    """Use a ticket: join a shared lease (`Renew`), whose fence the ticket names, or take an offered
    one (`Take`)."""
    while True:
        verdict, view = yield from retry_command_steps(observations, attempt, "use a ticket", until)
        if not isinstance(verdict, Granted):
            raise (yield from _refused_steps(observations, attempt.key, until))
        sent = attempt.sent_at(verdict.holder.beat)
        hold = hold_of(attempt.key, verdict, sent, care, attempt=attempt.number)
        if hold.fence < fence:  # it was passed on, and the store does not know yet to whom
            hold.holder = replace(hold.holder, fence=fence)
        if hold.valid(view.got):
            return hold
        # The reply took longer than the ttl. A lease to join lives on by its other party.
        if not isinstance(attempt.command, Renew) or view.got >= until:
            raise _too_late(attempt, hold)


def _too_late(attempt: Attempt, hold: Hold) -> HoldfastError:
    """Returns what to raise about a reply that came when the lease in it had run out. The caller of
    the steps gives back what was taken."""
    slow = f"the store took longer to answer than the ttl of {hold.ttl / SECOND:g} s"
    if isinstance(attempt.command, Renew):
        return Unavailable(
            f"The lease on {attempt.key!r} may still be held, but this party cannot rely on "
            f"it: {slow}. Do not start the work; try again."
        )
    return LeaseLost(
        f"The lease on {attempt.key!r} was taken, but {slow}: it had run out when the answer came, "
        f"and is given back. Do not start the work.",
        key=attempt.key,
        why=slow,
    )


def _refused_steps(observations: Observations, key: str, until: Micros) -> Steps[TicketRefused]:
    """Returns what to raise about a ticket of no use, with who holds the lock, if that is known."""
    holders: tuple[Holder, ...] = ()
    now = "the store did not say who holds it now"
    try:
        view = yield from look_steps(observations, key, until)
    except HoldfastError:
        pass
    else:
        holders = rules.alive(view.record.holders, observations.dead_when_asked(key, view))
        now = f"it is held by {names(holders)} now" if holders else "nobody holds it now"
    return TicketRefused(
        f"The ticket for {key!r} is no longer good: the lease was released, evicted or "
        f"lost, or the ticket was used before; {now}. Do not start the work.",
        key=key,
        holders=[anonymous(holder) for holder in holders],
    )


def offer_steps(observations: Observations, attempt: Attempt, until: Micros) -> Steps[None]:
    """Give a hold up to the party that brings the ticket. The caller has ended the hold before."""
    verdict, _ = yield from retry_command_steps(observations, attempt, "hand over", until)
    if not isinstance(verdict, Granted):
        raise LeaseLost(
            f"The lease on {attempt.key!r} cannot be handed over: it is lost.", key=attempt.key
        )
