"""The calls of the faces, as scripts.

Each mirrors the call of the same name in `holdfast.api.locks`, with the same order of things:
what is ended before what is written, and what is undone when a call does not succeed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.core.acquiring import Terms, acquire_all_steps, acquire_steps
from holdfast.core.cohorts import Member, acquire_in_line_steps
from holdfast.core.commands import Claim, Free, Offer
from holdfast.core.effects import Steps
from holdfast.core.handing_over import offer_steps
from holdfast.core.holds import NO_BEAT, Attempt, Hold
from holdfast.core.records import NEVER, SECOND, Mode
from holdfast.core.releasing import release_steps, undo_steps
from holdfast.core.renewing import renew_steps
from holdfast.core.steps import BEAT_BYTES, TOKEN_BYTES
from holdfast.core.tickets import Ticket
from holdfast.core.waiting import answers_by
from holdfast.errors import HoldfastError, LeaseLost, OutcomeUnknown, Refused, Unavailable
from holdfast.testing.sim.ledger import Belief
from holdfast.testing.sim.ops import Op
from holdfast.testing.sim.process import Interrupted, R, Script, run

if TYPE_CHECKING:
    from holdfast.testing.sim.client import SimClient

# As in the runtime, but shorter: a history is.
MOMENT = SECOND // 5
CLEAN_UP_FOR = 5 * SECOND


def claim(op: Op, key: str, ttl: int, mode: Mode, limit: int | None) -> Attempt:
    """An attempt with a token of its own."""
    command = Claim(op.draw(TOKEN_BYTES), op.client.name, mode, ttl, limit)
    attempt = Attempt(key, command, op.draw(BEAT_BYTES))
    op.attempts.append(attempt)
    return attempt


def in_time(op: Op, by: int, steps: Steps[R]) -> Script[R]:
    """Run the steps of a call that was promised to be back by then."""
    world = op.client.world
    began = world.t
    try:
        answer = yield from run(steps)
    except HoldfastError:
        world.ledger.came_back(op, began, by)
        raise
    world.ledger.came_back(op, began, by)
    return answer


def enter(
    client: SimClient, op: Op, attempt: Attempt, steps: Steps[Hold], by: int = NEVER
) -> Script[Belief | None]:
    """Get a lease: acquire, join or take."""
    try:
        hold = yield from in_time(op, by, steps)
    except (HoldfastError, Interrupted) as trouble:
        yield from fail(client, op, trouble, (attempt,))
        return None
    belief = client.adopt(hold, op)
    op.back_at = client.world.t
    client.world.ledger.op_done(op)
    return belief


def acquire(client: SimClient, op: Op, attempt: Attempt, terms: Terms) -> Script[Belief | None]:
    """Get a lease, together with other callers of this client that want the same."""
    now, cohorts = client.now(), client.cohorts
    member = Member(attempt, terms.care, now)
    try:
        if cohorts.enter(member, terms, now):
            steps = acquire_steps(client.observations, attempt, terms, now)
        else:
            steps = acquire_in_line_steps(client.observations, cohorts, member, attempt, terms)
        hold = yield from in_time(op, acquired_by(terms, now), steps)
        cohorts.granted(member, hold)
        op.passed_on = hold.token not in op.tokens
        op.tokens.add(hold.token)
    except (HoldfastError, Interrupted) as trouble:
        turn = None if member.cohort is None else member.cohort.turn
        if turn is not None and turn.by is member and turn.hold is not None:
            op.tokens.add(turn.hold.token)
        given_hold = cohorts.given(member)
        attempts = [attempt]
        if given_hold is not None:
            op.ending = given_hold
            given_hold.end("released")
            attempts.append(Attempt(attempt.key, Free(given_hold.token), NO_BEAT, touched=True))
        if isinstance(trouble, HoldfastError) and not isinstance(trouble, Refused):
            cohorts.dissolve(member, attempt.trouble_since)
        yield from fail(client, op, trouble, attempts)
        cohorts.move_on(member)
        return None
    belief = client.adopt(hold, op)
    op.back_at = client.world.t
    client.world.ledger.op_done(op)
    return belief


def acquire_all(
    client: SimClient, op: Op, attempts: Sequence[Attempt], terms: Terms
) -> Script[list[Belief]]:
    """Get several leases, all or none."""
    try:
        steps = acquire_all_steps(client.observations, attempts, terms)
        yield from in_time(op, acquired_by(terms, client.now()), steps)
    except (HoldfastError, Interrupted) as trouble:
        for belief in op.got:
            client.end(belief.hold, "released", "released")
        yield from fail(client, op, trouble, attempts)
        return []
    op.back_at = client.world.t
    for attempt in attempts:
        attempt.leftovers()[0]  # the faces find their leases by it
    client.world.ledger.op_done(op)
    return list(op.got)


def fail(
    client: SimClient, op: Op, trouble: BaseException, attempts: Sequence[Attempt]
) -> Script[None]:
    """A call did not succeed: take back what it left."""
    op.outcome = trouble
    op.back_at = client.world.t
    op.interruptible = False
    client.world.note(client, "failed", trouble)
    yield from undo(client, op, attempts)
    client.world.ledger.op_done(op)


def undo(client: SimClient, op: Op, attempts: Sequence[Attempt]) -> Script[None]:
    """As `Driver.undo`: here, if that takes but a moment, or else in the background."""
    if any(attempt.touched for attempt in attempts):
        by = client.now() + MOMENT
        try:
            yield from in_time(op, by, undo_steps(client.observations, attempts, by))
        except HoldfastError:
            op.cleaned = False
            undo_later(client, op, attempts)


def undo_later(client: SimClient, op: Op, attempts: Sequence[Attempt]) -> None:
    """As `Driver.undo_later`: in a thread of its own, for a bounded time."""
    cleaning = Op(client, f"{op.label}.clean", "clean", op.rng, client.world.t)
    cleaning.tokens, cleaning.ending, cleaning.outcome = op.tokens, op.ending, op.outcome
    cleaning.interruptible = False
    steps = undo_steps(client.observations, attempts, client.now() + CLEAN_UP_FOR)

    def clean() -> Script[None]:
        with suppress(HoldfastError):
            yield from run(steps)

    client.start(cleaning, clean(), client.forget)


def release(client: SimClient, op: Op, belief: Belief) -> Script[None]:
    """Give a lease back."""
    hold = belief.hold
    op.ending = hold
    if not client.end(hold, "released", "released") or not hold.care.may_release:
        return
    op.tokens.add(hold.token)
    cohorts, now = client.cohorts, client.now()
    if cohorts.pass_on(hold, now):
        return
    attempt = Attempt(hold.key, Free(hold.token), NO_BEAT)
    attempt.touched = True
    cohorts.going_back(hold, attempt)
    by = back_by(client)
    try:
        yield from in_time(op, by, release_steps(client.observations, attempt, now, by))
    except (Unavailable, OutcomeUnknown):
        undo_later(client, op, (attempt,))
    except HoldfastError:
        return
    except Interrupted:
        op.interruptible = False
        yield from undo(client, op, (attempt,))
    finally:
        cohorts.move_on(hold.member)


def hand_over(client: SimClient, op: Op, belief: Belief) -> Script[None]:
    """Give a lease up for whoever brings the ticket."""
    hold = belief.hold
    if not hold.valid(client.now()):
        return
    ticket = Ticket(hold.key, op.draw(TOKEN_BYTES), hold.fence, hold.ttl)
    op.tokens.add(hold.token)
    attempt = Attempt(hold.key, Offer(hold.token, ticket.token, hold.ttl))
    attempt.touched = True
    op.ending = hold
    if not client.end(hold, "handed over", "handed over"):
        return
    client.cohorts.going_back(hold, attempt)
    by = back_by(client)
    try:
        yield from in_time(op, by, offer_steps(client.observations, attempt, by))
    except (HoldfastError, Interrupted):
        op.interruptible = False
        yield from undo(client, op, (attempt,))
        return
    finally:
        client.cohorts.move_on(hold.member)
    client.world.offered.append(ticket)


def renew(client: SimClient, op: Op, belief: Belief) -> Script[None]:
    """Renew by hand."""
    hold = belief.hold
    if not hold.valid(client.now()):
        return
    by = back_by(client)
    try:
        yield from in_time(op, by, renew_steps(client.observations, hold, by))
    except LeaseLost as lost:
        client.lose(hold, str(lost))
    except HoldfastError:
        return
    else:
        client.extended(hold)


def acquired_by(terms: Terms, started: int) -> int:
    """By when a claim must be back."""
    return answers_by(started, terms.timeout, terms.request_timeout)


def back_by(client: SimClient) -> int:
    """By when a call that begins now, and does not wait for a lock, must be back."""
    return client.now() + client.world.plan.request_timeout
