"""What the callers do: the faces' calls, as scripts, and the random work made of them.

Each mirrors the call of the same name in `holdfast.api.locks`, with the same order of things:
what is ended before what is written, and what is undone when a call does not succeed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.core.acquiring import Terms, acquire_all_steps, acquire_steps
from holdfast.core.commands import Claim, Free, Offer, Renew, Take
from holdfast.core.effects import Sleep, Steps
from holdfast.core.evicting import evict_steps
from holdfast.core.handing_over import enter_steps, offer_steps
from holdfast.core.holds import NO_BEAT, Attempt, Care, Hold
from holdfast.core.listing import Purged, list_steps, purge_steps
from holdfast.core.records import SECOND, Mode
from holdfast.core.renewing import renew_steps
from holdfast.core.steps import BEAT_BYTES, TOKEN_BYTES, release_steps, undo_steps
from holdfast.core.tickets import Ticket
from holdfast.core.wait_until_free import wait_until_free_steps
from holdfast.core.waiting import BoundedWait
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.testing.sim.ledger import Belief
from holdfast.testing.sim.ops import Op
from holdfast.testing.sim.process import Interrupted, R, Script, run

if TYPE_CHECKING:
    from holdfast.testing.sim.client import SimClient

GRACE = 5 * SECOND
RETRY_FOR = 5 * SECOND


# --- calls ------------------------------------------------------------------------------------


def claim(op: Op, key: str, ttl: int, mode: Mode, limit: int | None) -> Attempt:
    """An attempt with a token of its own."""
    command = Claim(op.draw(TOKEN_BYTES), op.client.name, mode, ttl, limit)
    attempt = Attempt(key, command, op.draw(BEAT_BYTES))
    op.attempts.append(attempt)
    return attempt


def enter(client: SimClient, op: Op, attempt: Attempt, steps: Steps[Hold]) -> Script[Belief | None]:
    """Get a lease: acquire, join or take."""
    try:
        hold = yield from run(steps)
    except (HoldfastError, Interrupted) as trouble:
        yield from fail(client, op, trouble, (attempt,))
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
        yield from run(acquire_all_steps(client.observations, attempts, terms))
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
    """As `Driver.undo`."""
    if any(attempt.touched for attempt in attempts):
        try:
            yield from run(undo_steps(client.observations, attempts, client.now() + GRACE))
        except HoldfastError:
            op.cleaned = False


def release(client: SimClient, op: Op, belief: Belief) -> Script[None]:
    """Give a lease back."""
    hold = belief.hold
    op.ending = hold
    if not client.end(hold, "released", "released") or not hold.care.may_release:
        return
    op.tokens.add(hold.token)
    attempt = Attempt(hold.key, Free(hold.token), NO_BEAT)
    attempt.touched = True
    now = client.now()
    try:
        yield from run(release_steps(client.observations, attempt, now, now + RETRY_FOR))
    except HoldfastError:
        return
    except Interrupted:
        op.interruptible = False
        yield from undo(client, op, (attempt,))


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
    try:
        yield from run(offer_steps(client.observations, attempt, client.now() + RETRY_FOR))
    except (HoldfastError, Interrupted):
        op.interruptible = False
        yield from undo(client, op, (attempt,))
        return
    client.world.offered.append(ticket)


def renew(client: SimClient, belief: Belief) -> Script[None]:
    """Renew by hand."""
    hold = belief.hold
    if not hold.valid(client.now()):
        return
    try:
        yield from run(renew_steps(client.observations, hold))
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
    steps = acquire_steps(client.observations, attempt, _terms(client, op), client.now())
    belief = yield from enter(client, op, attempt, steps)
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
    steps = enter_steps(client.observations, attempt, Care(), client.now() + RETRY_FOR)
    belief = yield from enter(client, op, attempt, steps)
    if belief is not None:
        yield from _use(client, op, [belief])


def _join(client: SimClient, op: Op) -> Script[None]:
    rng, shared = op.rng, client.world.shared
    ticket = shared.pop(int(rng.random() * len(shared)))
    op.tokens.add(ticket.token)
    attempt = Attempt(ticket.key, Renew(ticket.token))
    care = Care(may_release=ticket.may_release)
    steps = enter_steps(client.observations, attempt, care, client.now() + RETRY_FOR)
    belief = yield from enter(client, op, attempt, steps)
    if belief is not None:
        yield from _use(client, op, [belief])


def _evict(client: SimClient, op: Op) -> Script[None]:
    world = client.world
    key = world.plan.keys[int(op.rng.random() * len(world.plan.keys))]
    holders = world.store.record(key).holders
    fence = holders[0].fence if holders and op.rng.random() < 0.5 else None
    steps = evict_steps(client.observations, key, fence, client.now() + RETRY_FOR)
    evicted = yield from _quietly(op, steps)
    if evicted is not None:
        op.evicted.update(holder.fence for holder in evicted.holders)
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
    wait = BoundedWait(key, client.name, timeout, 10 * SECOND, client.now())
    yield from _quietly(op, wait_until_free_steps(client.observations, wait))
    op.back_at = client.world.t
    op.seen_free = (key,) if op.outcome is None else ()
    client.world.ledger.op_done(op)


def _quietly(op: Op, steps: Steps[R]) -> Script[R | None]:
    try:
        return (yield from run(steps))
    except (HoldfastError, Interrupted) as trouble:
        op.outcome = trouble
        return None


def _mode(client: SimClient, op: Op) -> tuple[Mode, int | None]:
    world, throw = client.world, op.rng.random()
    if world.plan.contention or throw < 0.55:
        return "exclusive", None
    return ("shared", None) if throw < 0.8 else ("counted", world.plan.limit)


def _terms(client: SimClient, op: Op) -> Terms:
    rng, ttl = op.rng, client.world.plan.longest_ttl
    timeout = op.timeout = rng.choice((0, ttl // 2, 3 * ttl, None))
    max_hold = 2 * ttl if rng.random() < 0.1 else None
    care = Care(keep=rng.random() < 0.85, max_hold=max_hold)
    return Terms(timeout, rng.choice((None, None, True, True, False)), 10 * SECOND, care)


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
    long = rng.random() < (0.9 if plan.bundles or plan.watched else 0.5)
    for _ in range(1 + int(rng.random() * (4 if long else 1))):
        for belief in beliefs:
            world.look(belief)
        if rng.random() < 0.15:
            _share(client, op, beliefs[0])
        if rng.random() < 0.1:
            yield from renew(client, beliefs[0])
        span = (3 * ttl if plan.watched else ttl) if long else ttl // 20
        yield from Sleep(1000 if world.healing else int(rng.random() * span))
    for belief in beliefs:
        world.look(belief)


def _share(client: SimClient, op: Op, belief: Belief) -> None:
    hold = belief.hold
    if hold.valid(client.now()):
        ticket = Ticket(hold.key, hold.token, hold.fence, hold.ttl, op.rng.random() < 0.5)
        client.world.shared.append(ticket)


def _let_go(client: SimClient, op: Op, belief: Belief) -> Script[None]:
    throw = op.rng.random()
    if throw < 0.75 or client.world.healing:
        yield from release(client, op, belief)
    elif throw < 0.87:
        yield from hand_over(client, op, belief)
    elif throw < 0.93:
        client.end(belief.hold, "lost", "dropped")
    else:
        yield from _hold_on(client, op, [belief])
        yield from release(client, op, belief)
    client.world.look(belief)


_WORK = {
    "hold": _hold,
    "all": _all,
    "take": _take,
    "join": _join,
    "evict": _evict,
    "purge": _purge,
    "list": _list,
    "watch": _watch,
}
