"""Each checker catches a history that was made to break its rule, and passes one that was not."""

from __future__ import annotations

import pickle
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from holdfast.core import rules
from holdfast.core.commands import NOBODY, Claim, Decision, Granted
from holdfast.core.holds import Attempt, Care, hold_of
from holdfast.core.records import EMPTY, SECOND, Holder, Mode, Record, Waiter
from holdfast.errors import Busy, HoldfastError, Misconfigured, OutcomeUnknown, Unavailable
from holdfast.testing.sim.checker import Checker, Violation
from holdfast.testing.sim.checks import CHECKERS
from holdfast.testing.sim.checks.certainty import Certainty
from holdfast.testing.sim.checks.deadlines import Deadlines
from holdfast.testing.sim.checks.evicting import Evicting
from holdfast.testing.sim.checks.fences import Fences
from holdfast.testing.sim.checks.idle import Idle
from holdfast.testing.sim.checks.keeping import Keeping
from holdfast.testing.sim.checks.late_writes import LateWrites
from holdfast.testing.sim.checks.leaks import Leaks
from holdfast.testing.sim.checks.loss import LossIsTold, LostStaysLost
from holdfast.testing.sim.checks.overlap import Overlap
from holdfast.testing.sim.checks.progress import Progress
from holdfast.testing.sim.checks.queue import Queue
from holdfast.testing.sim.checks.requests import RequestsAndTimeouts
from holdfast.testing.sim.checks.resource import Resource
from holdfast.testing.sim.checks.together import Together
from holdfast.testing.sim.checks.tokens import OnlyTheToken
from holdfast.testing.sim.checks.watching import Watching
from holdfast.testing.sim.clocks import PPM, stream
from holdfast.testing.sim.ledger import Belief
from holdfast.testing.sim.ops import Op
from holdfast.testing.sim.plan import FAULTS, Options
from holdfast.testing.sim.process import Script
from holdfast.testing.sim.runs import simulate
from holdfast.testing.sim.world import World

TTL = 2 * SECOND


def test_a_violation_comes_home_from_another_process() -> None:
    """A search in several processes pickles what it has found."""
    found = pickle.loads(pickle.dumps(Violation("one-holder", "there are two")))
    assert (found.rule, str(found)) == ("one-holder", "one-holder: there are two")


class Scene:
    """A world in which only what the test says happens, with clocks that agree."""

    def __init__(self, *checkers: Checker, store: str = "server") -> None:
        options = Options(1, store=store, clients=3, keys=2, without=FAULTS)
        self.world = World(options, list(checkers), record=True)
        for client in self.world.clients:
            client.clock.rate = PPM
            client.clock.offset = 0
        self.world.store.clock.rate = PPM
        self.world.plan.watch_late = 0
        self.ops = 0

    def op(self, client: int = 0, kind: str = "hold") -> Op:
        """An operation of a client."""
        self.ops += 1
        return Op(self.world.clients[client], str(self.ops), kind, stream(self.ops), self.world.t)

    def holder(self, token: str, fence: int = 1, **changes: Any) -> Holder:
        """A grant that lasts for a ttl from now."""
        now = self.world.store.clock.at(self.world.t)
        holder = Holder(token, fence, "o", "exclusive", TTL, now, now + TTL, token + "-beat")
        return replace(holder, **changes)

    def write(
        self, op: Op, *holders: Holder, fence: int = 1, queue: tuple[Waiter, ...] = ()
    ) -> None:
        """A write of this operation lands."""
        store = self.world.store
        op.tokens.update(holder.token for holder in holders if holder.beat.startswith("own"))
        store.t = self.world.t
        store._write("a", store._rows.get("a"), Record(fence, holders, queue), (), op)

    def believe(self, op: Op, holder: Holder, sent: int | None = None, keep: bool = True) -> Belief:
        """A client is given this grant."""
        asked = op.client.now() if sent is None else sent
        op.tokens.add(holder.token)
        return op.client.adopt(hold_of("a", Granted(holder), asked, Care(keep=keep)), op)

    def look(self, belief: Belief) -> None:
        """Its party looks whether it still holds."""
        self.world.look(belief)


def test_overlap_sees_two_exclusive_leases() -> None:
    """Two clients believe to hold at once."""
    scene = Scene(Overlap())
    scene.believe(scene.op(0), scene.holder("x"))
    with pytest.raises(Violation, match="one-holder"):
        scene.believe(scene.op(1), scene.holder("y"))


@pytest.mark.parametrize(("mode", "limit", "fits"), [("shared", None, True), ("counted", 2, False)])
def test_overlap_knows_the_modes(mode: Mode, limit: int | None, fits: bool) -> None:
    """Three readers may share; three of two permits may not."""
    scene = Scene(Overlap())
    for client, token in enumerate("xyz"):
        holder = scene.holder(token, mode=mode, limit=limit)
        if client < 2 or fits:
            scene.believe(scene.op(client), holder)
        else:
            with pytest.raises(Violation):
                scene.believe(scene.op(client), holder)


def test_overlap_excuses_an_evicted_belief_and_nobody_else() -> None:
    """After an eviction the evicted party may believe on for a while."""
    scene = Scene(Overlap())
    first, evict = scene.holder("x"), scene.op(2, "evict")
    scene.write(scene.op(0), first)
    belief = scene.believe(scene.op(0), first)
    scene.write(evict, fence=2)
    assert belief.revoked
    scene.believe(scene.op(1), scene.holder("y", 3))
    with pytest.raises(Violation):
        scene.believe(scene.op(2), scene.holder("z", 4))


def test_overlap_is_over_at_the_deadline() -> None:
    """A belief whose deadline has passed is in nobody's way."""
    scene = Scene(Overlap())
    scene.believe(scene.op(0), scene.holder("x"))
    scene.world.t = TTL
    scene.believe(scene.op(1), scene.holder("y"))


def test_deadlines_sees_a_belief_that_outlives_its_record() -> None:
    """The deadline was counted from later than the expiry."""
    scene = Scene(Deadlines())
    holder = scene.holder("x")
    scene.write(scene.op(), holder)
    scene.believe(scene.op(), holder)
    with pytest.raises(Violation, match="longer than its record"):
        scene.believe(scene.op(1), holder, sent=TTL // 10)


def test_deadlines_counts_from_the_landing_without_a_clock() -> None:
    """An observer may find it dead a ttl after it landed."""
    scene = Scene(Deadlines(), store="observed")
    holder = scene.holder("x", expires_at=0)
    scene.write(scene.op(), holder)
    scene.believe(scene.op(), holder)
    with pytest.raises(Violation):
        scene.believe(scene.op(1), holder, sent=TTL // 10)


def test_lost_stays_lost_sees_a_resurrection() -> None:
    """A lease was seen to be over, and is valid again."""
    scene = Scene(LostStaysLost())
    belief = scene.believe(scene.op(), scene.holder("x"))
    scene.world.t = TTL
    scene.look(belief)
    belief.hold.lapsed, belief.hold.deadline = False, 3 * TTL
    with pytest.raises(Violation, match="valid again"):
        scene.look(belief)


def test_loss_is_told_sees_a_silent_watch() -> None:
    """The deadline has passed, and the watch said nothing."""
    scene = Scene(LossIsTold())
    belief = scene.believe(scene.op(), scene.holder("x"), keep=False)
    scene.world.t = 2 * TTL
    with pytest.raises(Violation, match="nobody was told"):
        scene.look(belief)


def test_loss_is_told_forgives_a_watch_that_could_not_run() -> None:
    """A paused client tells right after the pause."""
    scene = Scene(LossIsTold())
    belief = scene.believe(scene.op(), scene.holder("x"), keep=False)
    scene.world.t = belief.client.paused_until = 2 * TTL
    scene.look(belief)


def test_loss_is_told_wants_danger_first() -> None:
    """After two thirds of the ttl without a renewal somebody must say so."""
    scene = Scene(LossIsTold())
    belief = scene.believe(scene.op(), scene.holder("x"))
    scene.world.t = TTL * 3 // 4
    with pytest.raises(Violation, match="in danger"):
        scene.look(belief)


@pytest.mark.parametrize("kind", ["hold", "take", "evict"])
@pytest.mark.parametrize("trouble", [Unavailable(), Misconfigured(), OutcomeUnknown()])
def test_certainty_sees_what_was_done_all_the_same(kind: str, trouble: HoldfastError) -> None:
    """A call says that nothing was done, and it was."""
    scene = Scene(Certainty())
    held, op = scene.holder("x", beat="own"), scene.op(0, kind)
    if kind == "evict":
        scene.write(scene.op(1), held)
        scene.write(op, fence=2)
    else:
        scene.write(op, held)
    op.outcome = trouble
    if isinstance(trouble, OutcomeUnknown):
        scene.world.ledger.op_done(op)
    else:
        with pytest.raises(Violation, match="surely-not-done"):
            scene.world.ledger.op_done(op)


def test_certainty_allows_what_was_given_back() -> None:
    """Before the call was over; or not at all, and it was somebody else's."""
    scene = Scene(Certainty())
    op = scene.op()
    scene.write(op, scene.holder("x", beat="own"))
    scene.write(op)
    scene.write(scene.op(1), scene.holder("y", beat="own"))
    op.outcome = Unavailable()
    scene.world.ledger.op_done(op)


def test_fences_sees_a_number_that_does_not_grow() -> None:
    """Also across a deletion of the record."""
    scene = Scene(Fences())
    scene.write(scene.op(), scene.holder("x", 7), fence=7)
    store = scene.world.store
    store._write("a", store._rows["a"], None, (), scene.op())
    with pytest.raises(Violation, match="after 7"):
        scene.write(scene.op(1), scene.holder("y", 7), fence=7)


def test_fences_wants_an_eviction_to_raise_it() -> None:
    """Else the evicted one could not be told from the next."""
    scene = Scene(Fences())
    scene.write(scene.op(), scene.holder("x", 7), fence=7)
    with pytest.raises(Violation, match="eviction"):
        scene.write(scene.op(1, "evict"), fence=7)


def test_idle_sees_a_lock_that_nobody_comes_for() -> None:
    """It was freed, the first in line lives, and the next write comes much later."""
    scene = Scene(Idle())
    ends_at = scene.world.store.clock.at(60 * SECOND)
    place = Waiter("w", "o", "exclusive", 60 * SECOND, 0, ends_at, "b")
    scene.write(scene.op(), scene.holder("x"), queue=(place,))
    scene.world.t += 5 * SECOND
    scene.write(scene.op(), fence=2, queue=(place,))
    scene.world.t += 5 * SECOND
    with pytest.raises(Violation, match="idle"):
        scene.write(scene.op(1), scene.holder("w", 3), fence=3)


@pytest.mark.parametrize("store", ["server", "scripted"])
def test_idle_catches_a_release_that_wakes_nobody(store: str) -> None:
    """Those in line would come at their next look."""
    with patch.object(rules, "next_up", lambda record, dead: NOBODY):
        histories = (simulate(Options(seed, store=store, without=FAULTS)) for seed in range(60))
        rules_broken = {h.violation.rule for h in histories if h.violation is not None}
    assert rules_broken == {"no-idle-lock"}


def test_idle_catches_a_claim_that_sweeps_in_silence() -> None:
    """Whoever finds a holder dead is not always the first in line."""
    original = rules._claim

    def claim(*args: Any) -> Decision:
        return replace(original(*args), wake=NOBODY)

    with patch.dict(rules._RULES, {Claim: claim}):
        histories = (simulate(Options(s, store="observed", without=FAULTS)) for s in range(200))
        assert any(h.violation and h.violation.rule == "no-idle-lock" for h in histories)


def test_evicting_sees_a_newcomer_thrown_out() -> None:
    """A repeated eviction that takes out who came after the first one is caught."""
    scene = Scene(Evicting())
    evict = scene.op(1, "evict")
    scene.write(scene.op(), scene.holder("x", 1), scene.holder("y", 2), fence=2)
    scene.write(evict, scene.holder("y", 2), fence=3)
    scene.write(evict, fence=4)
    scene.write(scene.op(), scene.holder("z", 5), fence=5)
    with pytest.raises(Violation, match="came after"):
        scene.write(evict, fence=6)


def test_evicting_sees_one_that_arrives_too_late() -> None:
    """What arrives after the eviction came back is for those who were there then."""
    scene = Scene(Evicting())
    evict = scene.op(1, "evict")
    scene.write(scene.op(), scene.holder("x", 1), fence=1)
    scene.world.ledger.op_done(evict)
    scene.write(scene.op(), scene.holder("y", 2), fence=2)
    with pytest.raises(Violation, match="came after"):
        scene.write(evict, fence=3)


def test_evicting_wants_everyone_told() -> None:
    """An eviction that says nobody, and did it, is caught; one that failed says nothing."""
    scene = Scene(Evicting())
    evict = scene.op(1, "evict")
    scene.write(scene.op(), scene.holder("x", 1), fence=1)
    scene.write(evict, fence=2)
    with pytest.raises(Violation, match="not told"):
        scene.world.ledger.op_done(evict)
    evict.evicted = {1}
    scene.world.ledger.op_done(evict)
    evict.evicted, evict.outcome = set(), Busy("The store was away.", key="a", holders=[])
    scene.world.ledger.op_done(evict)


def test_fences_goes_by_time_where_the_last_writer_wins() -> None:
    """What was asked for long after another was given has the larger number."""
    scene = Scene(Fences(), store="last-writer")
    scene.believe(scene.op(), scene.holder("x", 7))
    scene.world.t = 60 * SECOND
    with pytest.raises(Violation, match="long after"):
        scene.believe(scene.op(1), scene.holder("y", 6))


def test_only_the_token_sees_somebody_else_free() -> None:
    """A live holder is gone, by a write of one who does not know its token."""
    scene = Scene(OnlyTheToken())
    owner = scene.op()
    owner.tokens.add("x")
    scene.write(owner, scene.holder("x"))
    with pytest.raises(Violation, match="which is alive"):
        scene.write(scene.op(1))


def test_only_the_token_sees_somebody_else_change() -> None:
    """A holder's expiry was moved by another."""
    scene = Scene(OnlyTheToken())
    owner = scene.op()
    owner.tokens.add("x")
    holder = scene.holder("x")
    scene.write(owner, holder)
    with pytest.raises(Violation, match="changed"):
        scene.write(scene.op(1), replace(holder, expires_at=holder.expires_at + 1))


def test_only_the_token_lets_the_dead_be_swept() -> None:
    """After its expiry anybody may take a holder out."""
    scene = Scene(OnlyTheToken())
    owner = scene.op()
    owner.tokens.add("x")
    scene.write(owner, scene.holder("x"))
    scene.world.t = TTL + 10
    scene.write(scene.op(1))


def test_only_the_token_sees_a_false_alarm() -> None:
    """A lease is given up as lost while the store still has it."""
    scene = Scene(OnlyTheToken())
    op = scene.op()
    op.tokens.add("x")
    scene.write(op, scene.holder("x"))
    belief = scene.believe(op, scene.holder("x"))
    with pytest.raises(Violation, match="still has it"):
        belief.client.lose(belief.hold, "a reply was lost")


def test_together_sees_half_of_an_acquire_all() -> None:
    """It returned with one of two keys."""
    scene = Scene(Together())
    op = scene.op(kind="all")
    op.attempts = [Attempt("a", Granted), Attempt("b", Granted)]  # type: ignore[arg-type]
    scene.believe(op, scene.holder("x"))
    with pytest.raises(Violation, match="holds only"):
        scene.world.ledger.op_done(op)
    op.outcome = Busy()
    with pytest.raises(Violation, match="still holds"):
        scene.world.ledger.op_done(op)


def test_queue_sees_somebody_overtake() -> None:
    """A grant although a live writer stands in the queue."""
    scene = Scene(Queue())
    now = scene.world.store.clock.at(0)
    waiter = Waiter("w", "o", "exclusive", TTL, now, now + TTL, "w-beat")
    scene.write(scene.op(), queue=(waiter,))
    with pytest.raises(Violation, match="past the queue"):
        scene.write(scene.op(1), scene.holder("x", mode="shared"))


def test_queue_lets_the_dead_be_passed() -> None:
    """A waiter who has run out is no longer in the way."""
    scene = Scene(Queue())
    now = scene.world.store.clock.at(0)
    scene.write(scene.op(), queue=(Waiter("w", "o", "exclusive", TTL, now, now + TTL, "w-beat"),))
    scene.world.t = TTL + 10
    scene.write(scene.op(1), scene.holder("x"))


def test_keeping_asks_why_a_lease_ran_out() -> None:
    """Nothing was wrong, and it was lost all the same."""
    scene = Scene(Keeping())
    belief = scene.believe(scene.op(), scene.holder("x"))
    scene.world.t = TTL
    with pytest.raises(Violation, match="nothing was wrong"):
        belief.client.lose(belief.hold, "it could not be renewed in time")


def test_resource_sees_a_valid_holder_refused() -> None:
    """Somebody with a larger fence wrote before."""
    scene = Scene(Resource())
    scene.look(scene.believe(scene.op(), scene.holder("x", 9)))
    with pytest.raises(Violation, match="refused"):
        scene.look(scene.believe(scene.op(1), scene.holder("y", 8)))


def test_resource_refuses_quietly_where_no_exclusion_is_promised() -> None:
    """On a best-effort store the fence is what keeps the order."""
    resource = Resource()
    scene = Scene(resource, store="last-writer")
    scene.look(scene.believe(scene.op(), scene.holder("x", 9)))
    scene.look(scene.believe(scene.op(1), scene.holder("y", 8)))
    assert resource.refused == 1
    assert resource.fenced == {"a": 9}
    assert resource.unfenced == {"a": [9, 8]}


def test_patience_sees_a_store_being_hammered() -> None:
    """Hundreds of requests in no time."""
    scene = Scene(RequestsAndTimeouts())
    op = scene.op()
    op.requests = 500
    with pytest.raises(Violation, match="500 requests"):
        scene.world.ledger.op_done(op)


def test_patience_sees_a_timeout_that_is_not_kept() -> None:
    """It came back long after its caller's patience had ended."""
    scene = Scene(RequestsAndTimeouts())
    op = scene.op()
    op.client.stood_still_until = -1
    op.timeout, op.back_at = SECOND, 60 * SECOND
    with pytest.raises(Violation, match="after its timeout"):
        scene.world.ledger.op_done(op)


def test_progress_sees_somebody_wait_for_ever() -> None:
    """The world is healed, and an operation does not come back."""
    scene = Scene(Progress())
    scene.world.busy = 1

    def tick() -> None:
        scene.world.at(scene.world.t + SECOND, tick)

    tick()
    with pytest.raises(Violation, match="progress"):
        scene.world.ledger.finished()


def test_watching_sees_who_was_there_all_the_time() -> None:
    """A watcher is told that a lock is free, and its holder never went away."""
    scene = Scene(Watching())
    holding = scene.believe(scene.op(0), scene.holder("x"))
    watch = scene.op(1, "watch")
    scene.world.t = SECOND
    scene.world.ledger.op_done(watch)
    watch.seen_free = ("a",)
    with pytest.raises(Violation, match="free-was-free"):
        scene.world.ledger.op_done(watch)
    watch.started = holding.since - 1  # it may have looked before the holder came
    scene.world.ledger.op_done(watch)
    watch.started = holding.since
    scene.world.t = TTL
    scene.world.ledger.op_done(watch)


def test_leaks_sees_what_a_failed_call_left() -> None:
    """It said that it failed, and its grant is in the store."""
    scene = Scene(Leaks())
    op = scene.op()
    op.tokens.add("x")
    op.attempts = [Attempt("a", Granted)]  # type: ignore[arg-type]
    op.outcome = Busy()
    scene.write(op, scene.holder("x"))
    with pytest.raises(Violation, match="and left"):
        scene.world.ledger.op_done(op)
    scene.world.ledger.ghosts.add("x")
    scene.world.ledger.op_done(op)


def test_leaks_sees_a_lock_that_nobody_can_get() -> None:
    """Everybody is gone, and a holder that never expires is in the way."""
    scene = Scene(Leaks())
    scene.write(scene.op(), scene.holder("x", expires_at=10**18))
    with pytest.raises(Violation, match="not all is free"):
        scene.world.ledger.finished()
    assert Scene(Leaks()).world.store.record("a") == EMPTY


def test_a_surprise_is_a_violation_too() -> None:
    """Steps that break with an error of their own are caught."""
    scene = Scene()

    def script() -> Script[None]:
        raise KeyError("beat")
        yield

    with pytest.raises(Violation, match="KeyError"):
        scene.world.clients[0].start(scene.op(), script(), lambda process: None)


def test_every_checker_has_its_own_rule() -> None:
    """A violation names exactly one rule."""
    rules = [checker.rule for checker in CHECKERS]
    assert len(rules) == len(set(rules))


def test_a_holder_that_sleeps_before_its_write() -> None:
    """The resource without a gate takes its late write, the one with a gate refuses it."""
    writes = LateWrites()
    scene = Scene(writes)
    sleeper = scene.believe(scene.op(), scene.holder("x", 8))
    scene.world.look_and_write(sleeper)
    sleeper.client.paused_until = 3 * TTL
    scene.world.t = 2 * TTL
    scene.world.look_and_write(scene.believe(scene.op(1), scene.holder("y", 9)))
    scene.world.run_while(lambda: writes.unfenced.get("a") != [9, 8])
    assert writes.fenced == {"a": [9]}
    assert (writes.refused, writes.late_without_a_gate) == (1, 1)


def test_late_writes_sees_a_valid_holder_refused() -> None:
    """Somebody with a larger fence wrote before."""
    writes = LateWrites()
    scene = Scene(writes)
    writes.wrote(scene.believe(scene.op(), scene.holder("x", 9)))
    with pytest.raises(Violation, match="refused"):
        writes.wrote(scene.believe(scene.op(1), scene.holder("y", 8)))


def test_random_histories_have_late_writes() -> None:
    """In some of them a holder stands still before its write: only the gate keeps it out."""
    late = refused = 0
    for seed in range(40):
        writes = LateWrites()
        world = World(Options(seed), [writes])
        assert world.run() is None
        late += writes.late_without_a_gate
        refused += writes.refused
    assert late > 0
    assert refused >= late
