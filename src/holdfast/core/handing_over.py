"""Tickets at work: joining a lease, taking one over, and offering one to the next party."""

from __future__ import annotations

from holdfast.core import rules
from holdfast.core.commands import Granted
from holdfast.core.effects import Steps
from holdfast.core.holds import Attempt, Care, Hold, hold_of
from holdfast.core.observations import Observations
from holdfast.core.records import Holder, Micros, anonymous
from holdfast.core.steps import look_steps, retry_command_steps
from holdfast.core.waiting import names
from holdfast.errors import HoldfastError, LeaseLost, TicketRefused


def enter_steps(
    observations: Observations, attempt: Attempt, care: Care, until: Micros
) -> Steps[Hold]:
    """Use a ticket: join a shared lease (`Renew`) or take an offered one (`Take`)."""
    verdict, view = yield from retry_command_steps(observations, attempt, "use a ticket", until)
    if isinstance(verdict, Granted):
        hold = hold_of(attempt.key, verdict, attempt.sent_at(verdict.holder.beat), care)
        if hold.valid(view.got):
            return hold
    raise (yield from _refused_steps(observations, attempt.key))


def _refused_steps(observations: Observations, key: str) -> Steps[TicketRefused]:
    """Returns what to raise about a ticket of no use, with who holds the lock, if that is known."""
    holders: tuple[Holder, ...] = ()
    now = "the store did not say who holds it now"
    try:
        view = yield from look_steps(observations, key)
    except HoldfastError:
        pass
    else:
        holders = rules.alive(view.record.holders, observations.dead_when_asked(key, view))
        now = f"it is held by {names(holders)} now" if holders else "nobody holds it now"
    return TicketRefused(
        f"The ticket for {key!r} is of no use any more: the lease was released, evicted or "
        f"lost, or the ticket was used before; {now}. Do not start the work.",
        key=key,
        holders=[anonymous(holder) for holder in holders],
    )


def offer_steps(observations: Observations, attempt: Attempt, until: Micros) -> Steps[None]:
    """Give a hold up to whoever brings the ticket. The caller has ended the hold before."""
    verdict, _ = yield from retry_command_steps(observations, attempt, "hand over", until)
    if not isinstance(verdict, Granted):
        raise LeaseLost(
            f"The lease on {attempt.key!r} cannot be handed over: it is lost.", key=attempt.key
        )
