"""What the callers do: the faces' calls, as scripts, and the random work made of them.

Each mirrors the call of the same name in `holdfast.api.locks`, with the same order of things:
what is ended before what is written, and what is undone when a call does not succeed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.core.acquiring import Terms, acquire_all_steps, acquire_steps
from holdfast.core.cohorts import Member, acquire_in_line_steps
from holdfast.core.commands import Claim, Free, Offer, Renew, Take
from holdfast.core.effects import Sleep, Steps
from holdfast.core.evicting import evict_steps
from holdfast.core.handing_over import enter_steps, offer_steps
from holdfast.core.holds import NO_BEAT, Attempt, Care, Hold
from holdfast.core.listing import Purged, list_steps, purge_steps
from holdfast.core.records import NEVER, SECOND, Mode
from holdfast.core.releasing import release_steps, undo_steps
from holdfast.core.renewing import renew_steps
from holdfast.core.steps import BEAT_BYTES, TOKEN_BYTES
from holdfast.core.tickets import Ticket
from holdfast.core.wait_until_free import wait_until_free_steps
from holdfast.core.waiting import BoundedWait, answers_by
from holdfast.errors import HoldfastError, LeaseLost, OutcomeUnknown, Refused, Unavailable
from holdfast.testing.sim.ledger import Belief
from holdfast.testing.sim.ops import Op
from holdfast.testing.sim.process import Interrupted, R, Script, run

if TYPE_CHECKING:
    from holdfast.testing.sim.client import SimClient

# As in the runtime, but shorter: a history is.
MOMENT = SECOND // 5
CLEAN_UP_FOR = 5 * SECOND


# --- calls ------------------------------------------------------------------------------------


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
        hold = yield from in_time(op, _acquired_by(terms, now), steps)
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


def claim_of(attempt: Attempt) -> Claim:
    """The claim of an attempt that is one."""
    assert isinstance(attempt.command, Claim)
    return attempt.command


def acquire_all(
    client: SimClient, op: Op, attempts: Sequence[Attempt], terms: Terms
) -> Script[list[Belief]]:
    """Get several leases, all or none."""
    try:
        steps = acquire_all_steps(client.observations, attempts, terms)
        yield from in_time(op, _acquired_by(terms, client.now()), steps)
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
    by = _answers_by(client)
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
    by = _answers_by(client)
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
    by = _answers_by(client)
    try:
        yield from in_time(op, by, renew_steps(client.observations, hold, by))
    except LeaseLost as lost:
        client.lose(hold, str(lost))
    except HoldfastError:
        return
    else:
        client.extended(hold)


# --- random work --------------------------------------------------------------------------------


def work(client: SimClient, op: Op) -> Script[None]:
    """Do one random thing."""
    yield from _WORK[op.kind](client, op)


def pick_kind(client: SimClient, op: Op) -> str:
    """What to do next."""
    world, throw = client.world, op.rng.random()
    if world.plan.patterns:
        return "once" if throw < 0.5 else "lead"
    if world.plan.crowd and op.rng.random() < 0.8:
        return "hold"
    if throw < 0.10 and world.offered:
        return "take"
    if throw < 0.22 and world.shared:
        return "join"
    if throw < (0.85 if world.plan.bundles else 0.38) and len(world.plan.keys) > 1:
        return "all"
    if throw < 0.42:
        return "evict"
    if throw < 0.45 and world.plan.kind.always_tells_time:
        return "purge"
    if throw < 0.46:
        return "list"
    watches, lists = (0.60, 0.85) if world.plan.watched else (0.49, 0.49)
    if throw < watches:
        return "watch"
    return "list" if throw < lists else "hold"


def _hold(client: SimClient, op: Op) -> Script[None]:
    rng, plan = op.rng, client.world.plan
    key = plan.keys[int(rng.random() * len(plan.keys))]
    mode, limit = _mode(client, op)
    attempt = claim(op, key, rng.choice(plan.ttls), mode, limit)
    belief = yield from acquire(client, op, attempt, _terms(client, op))
    if belief is not None:
        yield from _use(client, op, [belief])


def _all(client: SimClient, op: Op) -> Script[None]:
    rng, plan = op.rng, client.world.plan
    keys = list(plan.keys)
    rng.shuffle(keys)
    ttl = rng.choice(plan.ttls)
    wanted = keys[: 2 + int(rng.random() * 2)]
    attempts = [claim(op, key, ttl, *_mode(client, op)) for key in wanted]
    beliefs = yield from acquire_all(client, op, attempts, _terms(client, op))
    if beliefs:
        yield from _use(client, op, beliefs)


def _take(client: SimClient, op: Op) -> Script[None]:
    rng, offered = op.rng, client.world.offered
    ticket = offered[int(rng.random() * len(offered))]
    if rng.random() < 0.8:
        offered.remove(ticket)
    token = op.draw(TOKEN_BYTES)
    op.tokens.add(ticket.token)
    attempt = Attempt(ticket.key, Take(ticket.token, token, client.name, ticket.ttl))
    op.attempts.append(attempt)
    by = _answers_by(client)
    steps = enter_steps(client.observations, attempt, Care(), by)
    belief = yield from enter(client, op, attempt, steps, by)
    if belief is not None:
        yield from _use(client, op, [belief])


def _join(client: SimClient, op: Op) -> Script[None]:
    rng, shared = op.rng, client.world.shared
    ticket = shared.pop(int(rng.random() * len(shared)))
    op.tokens.add(ticket.token)
    attempt = Attempt(ticket.key, Renew(ticket.token))
    care = Care(may_release=ticket.may_release, joined=True)
    by = _answers_by(client)
    steps = enter_steps(client.observations, attempt, care, by, ticket.fence)
    belief = yield from enter(client, op, attempt, steps, by)
    if belief is not None:
        yield from _use(client, op, [belief])


def _evict(client: SimClient, op: Op) -> Script[None]:
    world = client.world
    key = world.plan.keys[int(op.rng.random() * len(world.plan.keys))]
    holders = world.store.record(key).holders
    fence = holders[0].fence if holders and op.rng.random() < 0.5 else None
    by = _answers_by(client)
    evicted = yield from _quietly(op, evict_steps(client.observations, key, fence, by), by)
    if evicted is not None:
        op.evicted.update(holder.fence for holder in evicted.holders)
        client.cohorts.evicted(key)
    world.ledger.op_done(op)


def _purge(client: SimClient, op: Op) -> Script[None]:
    retention = 2 * client.world.plan.clock_reach
    yield from _quietly(op, purge_steps(client.observations, "", Purged(0, None), retention))


def _list(client: SimClient, op: Op) -> Script[None]:
    seen = yield from _quietly(op, list_steps(client.observations, "", None))
    op.back_at = client.world.t
    if seen is not None:
        op.seen_free = tuple(lock.key for lock in seen.locks if not lock.holders)
    client.world.ledger.op_done(op)


def _watch(client: SimClient, op: Op) -> Script[None]:
    plan = client.world.plan
    key = plan.keys[int(op.rng.random() * len(plan.keys))]
    timeout = op.timeout = op.rng.choice((0, plan.longest_ttl // 2, 3 * plan.longest_ttl, None))
    wait = BoundedWait(
        key, client.name, timeout, 10 * SECOND, client.now(), request_timeout=plan.request_timeout
    )
    yield from _quietly(op, wait_until_free_steps(client.observations, wait), wait.answers_by)
    op.back_at = client.world.t
    op.seen_free = (key,) if op.outcome is None else ()
    client.world.ledger.op_done(op)


def _quietly(op: Op, steps: Steps[R], by: int = NEVER) -> Script[R | None]:
    try:
        return (yield from in_time(op, by, steps))
    except (HoldfastError, Interrupted) as trouble:
        op.outcome = trouble
        return None


def _mode(client: SimClient, op: Op) -> tuple[Mode, int | None]:
    world, throw = client.world, op.rng.random()
    if world.plan.contention or world.plan.crowd or throw < 0.55:
        return "exclusive", None
    return ("shared", None) if throw < 0.8 else ("counted", world.plan.limit)


def _terms(client: SimClient, op: Op) -> Terms:
    rng, ttl = op.rng, client.world.plan.longest_ttl
    timeout = op.timeout = rng.choice((0, ttl // 2, 3 * ttl, None))
    if client.world.plan.crowd and not timeout:
        timeout = op.timeout = None
    max_hold = 2 * ttl if rng.random() < 0.1 else None
    care = Care(keep=rng.random() < 0.85, max_hold=max_hold)
    fair = rng.choice((None, None, True, True, False))
    return Terms(timeout, fair, 10 * SECOND, care, client.world.plan.request_timeout)


def _acquired_by(terms: Terms, started: int) -> int:
    """By when a claim must be back."""
    return answers_by(started, terms.timeout, terms.request_timeout)


def _answers_by(client: SimClient) -> int:
    """By when a call that begins now, and does not wait for a lock, must be back."""
    return client.now() + client.world.plan.request_timeout


# --- while it is held ---------------------------------------------------------------------------


def _use(client: SimClient, op: Op, beliefs: list[Belief]) -> Script[None]:
    """Hold for a while, look now and then, and end it in one way or another."""
    yield from _hold_on(client, op, beliefs)
    for belief in reversed(beliefs):
        yield from _let_go(client, op, belief)


def _hold_on(client: SimClient, op: Op, beliefs: list[Belief]) -> Script[None]:
    """The body of a `with` block; an interrupt ends it, and the lease is released."""
    try:
        yield from _body(client, op, beliefs)
    except Interrupted:
        client.world.note(client, "stops", op)


def _body(client: SimClient, op: Op, beliefs: list[Belief]) -> Script[None]:
    rng, world = op.rng, client.world
    ttl = beliefs[0].hold.ttl
    plan = world.plan
    long = not plan.crowd and rng.random() < (0.9 if plan.bundles or plan.watched else 0.5)
    for _ in range(1 + int(rng.random() * (4 if long else 1))):
        for belief in beliefs:
            world.look_and_write(belief)
        if rng.random() < 0.15:
            _share(client, op, beliefs[0])
        if rng.random() < 0.1:
            yield from renew(client, op, beliefs[0])
        span = (3 * ttl if plan.watched else ttl) if long else ttl // (200 if plan.crowd else 20)
        yield from Sleep(1000 if world.healing else int(rng.random() * span))
    for belief in beliefs:
        world.look_and_write(belief)


def _share(client: SimClient, op: Op, belief: Belief) -> None:
    hold = belief.hold
    hold.shared = True
    if hold.valid(client.now()):
        ticket = Ticket(hold.key, hold.token, hold.fence, hold.ttl, op.rng.random() < 0.5)
        client.world.shared.append(ticket)


def _let_go(client: SimClient, op: Op, belief: Belief) -> Script[None]:
    throw = op.rng.random() * (0.8 if client.world.plan.crowd else 1)
    if throw < 0.75 or client.world.healing:
        yield from release(client, op, belief)
    elif throw < 0.87:
        yield from hand_over(client, op, belief)
    elif throw < 0.93:
        client.dropped(belief.hold)
    else:
        yield from _hold_on(client, op, [belief])
        yield from release(client, op, belief)
    client.world.look(belief)


def _once(client: SimClient, op: Op) -> Script[None]:
    from holdfast.testing.sim.patterns import Once

    yield from Once(client, op).script()


def _lead(client: SimClient, op: Op) -> Script[None]:
    from holdfast.testing.sim.patterns import Candidate

    yield from Candidate(client, op).script()


_WORK = {
    "once": _once,
    "lead": _lead,
    "hold": _hold,
    "all": _all,
    "take": _take,
    "join": _join,
    "evict": _evict,
    "purge": _purge,
    "list": _list,
    "watch": _watch,
}
