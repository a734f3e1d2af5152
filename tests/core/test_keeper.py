"""The keeper's schedule, under a clock that the test winds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.commands import Granted
from holdfast.core.holds import Care, Hold, hold_of
from holdfast.core.keeper import LATE, STALE_TIMERS, Keeper
from holdfast.core.records import SECOND, Holder

TTL = 30 * SECOND
PERIOD = TTL // 3


def hold(name: str = "t", at: int = 0, ttl: int = TTL, care: Care | None = None) -> Hold:
    """A hold that was granted at this time."""
    holder = Holder(name, 1, "o", "exclusive", ttl, 0, 0, "b")
    return hold_of("k", Granted(holder), at, care or Care())


class World:
    """A keeper, a clock, and a store that answers beats as it is told."""

    def __init__(self, beats_per_second: float | None = None, latency: int = 1000) -> None:
        self.keeper = Keeper(beats_per_second)
        self.now = 0
        self.latency = latency
        self.answers: Callable[[Hold], bool | None] = lambda hold: True  # None: it hangs
        self.on_their_way: list[tuple[int, Hold]] = []
        self.beats: list[tuple[int, Hold]] = []
        self.dangers: list[tuple[int, Hold]] = []
        self.rescues: list[tuple[int, Hold]] = []
        self.losses: list[tuple[int, Hold]] = []
        self.polls = 0

    def run(self, until: int) -> None:
        """Let the time pass, and do what is due when it is due."""
        while True:
            moments = [
                at for at in (self.keeper.next_at(), *(a for a, _ in self.on_their_way)) if at
            ]
            at = max(self.now, min(moments, default=until))
            if at >= until:
                self.now = until
                return
            self.now = at
            self._answer()
            due = self.keeper.poll(self.now)
            self.polls += 1
            assert self.polls < 200_000, "the keeper runs in circles"
            self.beats += [(self.now, hold) for hold in due.beats]
            self.dangers += [(self.now, hold) for hold in due.dangers]
            self.losses += [(self.now, hold) for hold in due.losses]
            self.on_their_way += [(self.now + self.latency, hold) for hold in due.beats]

    def _answer(self) -> None:
        arrived = [(at, hold) for at, hold in self.on_their_way if at <= self.now]
        self.on_their_way = [(at, hold) for at, hold in self.on_their_way if at > self.now]
        for at, hold in arrived:
            answer = self.answers(hold)
            if answer is None:
                continue
            if answer and hold.valid(self.now):
                hold.extend(hold.holder, at - self.latency)
            if self.keeper.beat_done(hold, self.now, renewed=answer):
                self.rescues.append((self.now, hold))


def test_a_lease_is_kept_for_ever() -> None:
    """It is renewed about three times in a ttl, without danger or loss."""
    world, one = World(), hold()
    world.keeper.add(one)
    world.run(100 * TTL)
    assert 300 <= len(world.beats) <= 450
    assert (world.dangers, world.losses) == ([], [])
    assert one.state == "held"


def test_the_first_beat_comes_in_the_first_third() -> None:
    """No lease waits for longer than a third of its ttl, nor beats at once."""
    world = World()
    for number in range(100):
        world.keeper.add(hold(str(number)))
    world.run(PERIOD + 1)
    assert len(world.beats) == 100
    assert min(at for at, _ in world.beats) >= PERIOD // 2


@pytest.mark.parametrize("ttls", [(100 * TTL, TTL), (TTL, 100 * TTL)])
@pytest.mark.parametrize("later", [0, 20 * TTL])
def test_a_short_lease_beside_a_long_one(ttls: tuple[int, int], later: int) -> None:
    """The keeper looks in time for the one that needs it first, whichever came first."""
    world, holds = World(), []
    for ttl in ttls:
        holds.append(hold(str(ttl), at=world.now, ttl=ttl))
        world.keeper.add(holds[-1])
        world.run(world.now + later)
    world.run(world.now + 10 * TTL)
    assert all(one.valid(world.now) for one in holds)
    assert (world.dangers, world.losses) == ([], [])


def test_who_stands_in_line_has_its_turn_when_it_comes() -> None:
    """And not at the next moment at which something else is to be done."""
    world = World(beats_per_second=0.25)
    for name in ("first", "second"):
        world.keeper.add(hold(name))
    world.run(PERIOD + 4 * SECOND)
    (first, _), (second, _) = world.beats
    assert first + 4 * SECOND - LATE <= second <= first + 4 * SECOND


def test_beats_are_spread() -> None:
    """Leases that were got together do not beat together: no hundredth of a period has more
    than a few of them."""
    world = World()
    for number in range(1000):
        world.keeper.add(hold(str(number)))
    world.run(10 * TTL)
    last = [at for at, _ in world.beats if at > 9 * TTL]
    slices = Counter(at // (PERIOD // 100) for at in last)
    assert len(last) > 2500
    assert max(slices.values()) < 60
    assert world.losses == []


def test_cap_on_beats() -> None:
    """No more than so many a second in all, and everybody has a turn."""
    world = World(beats_per_second=20)
    for number in range(100):
        world.keeper.add(hold(str(number)))
    world.run(20 * TTL)
    seconds = Counter(at // SECOND for at, _ in world.beats)
    assert max(seconds.values()) <= 21
    assert {hold.token for _, hold in world.beats} == {str(number) for number in range(100)}
    assert world.losses == []


def test_a_cap_that_is_too_low_costs_leases_but_never_the_cap() -> None:
    """Too many leases for the cap: some are lost and told, the rest are kept."""
    world = World(beats_per_second=1)
    for number in range(200):
        world.keeper.add(hold(str(number)))
    world.run(10 * TTL)
    assert max(Counter(at // SECOND for at, _ in world.beats).values()) <= 2
    assert world.losses
    assert len(world.keeper) + len(world.losses) == 200
    assert len(world.keeper) >= 5


def test_turns_of_leases_that_are_gone_are_not_waited_for() -> None:
    """A crowd that was released leaves no queue behind for whoever comes next."""
    world = World(beats_per_second=1)
    crowd = [hold(str(number)) for number in range(500)]
    for one in crowd:
        world.keeper.add(one)
    world.run(PERIOD + SECOND)  # all have their turn, most of them minutes away
    for one in crowd:
        world.keeper.discard(one)
    late = hold("late", at=world.now)
    world.keeper.add(late)
    world.run(world.now + 3 * TTL)
    assert late.state == "held"


def test_danger_then_loss_when_beats_fail() -> None:
    """Danger after two thirds of the ttl, loss at the deadline, and a try until then."""
    world, one = World(), hold()
    world.answers = lambda hold: False
    world.keeper.add(one)
    world.run(2 * TTL)
    assert world.dangers == [(2 * TTL // 3, one)]
    assert world.losses == [(one.deadline, one)]
    assert one.deadline < TTL
    assert one.state == "lost"
    assert "could not be renewed" in one.why
    tries = [at for at, _ in world.beats]
    assert len(tries) > 5
    assert max(later - before for before, later in pairwise(tries)) < PERIOD / 2
    assert len(world.keeper) == 0


def test_a_hung_beat_holds_nothing_up() -> None:
    """Danger and loss come at their moments while a beat never comes back."""
    world, one, other = World(), hold("hung"), hold("fine")
    world.answers = lambda hold: None if hold is one else True
    world.keeper.add(one)
    world.keeper.add(other)
    world.run(3 * TTL)
    assert [token.token for _, token in world.beats].count("hung") == 1
    assert world.dangers == [(2 * TTL // 3, one)]
    assert world.losses == [(one.deadline, one)]
    assert other.state == "held"


def test_a_beat_that_comes_back_after_the_loss_changes_nothing() -> None:
    """Lost stays lost."""
    world, one = World(latency=2 * TTL), hold()
    world.keeper.add(one)
    world.run(5 * TTL)
    assert world.losses == [(one.deadline, one)]
    assert world.rescues == []
    assert one.state == "lost"


def test_a_renewal_ends_the_danger() -> None:
    """Beats that fail and then get through: danger once, out of it once."""
    world, one = World(), hold()
    world.answers = lambda hold: world.now > TTL * 3 // 4
    world.keeper.add(one)
    world.run(10 * TTL)
    assert [hold for _, hold in world.dangers] == [one]
    assert [hold for _, hold in world.rescues] == [one]
    assert world.losses == []


def test_danger_can_come_again() -> None:
    """Each time renewals fail for long, it is told anew."""
    world, one = World(), hold()
    world.answers = lambda hold: len(world.dangers) > len(world.rescues)
    world.keeper.add(one)
    world.run(9 * TTL)
    assert len(world.dangers) >= 5
    assert len(world.dangers) - len(world.rescues) in (0, 1)
    assert world.losses == []


def test_max_hold() -> None:
    """Past it there are no more beats; the lease runs out, and that is no danger."""
    world, one = World(), hold(care=Care(max_hold=2 * TTL))
    world.keeper.add(one)
    world.run(5 * TTL)
    assert max(at for at, _ in world.beats) < 2 * TTL
    assert [hold for _, hold in world.losses] == [one]
    assert 2 * TTL < world.losses[0][0] < 3 * TTL
    assert "max_hold" in one.why
    assert world.dangers == []


def test_without_keep() -> None:
    """A lease that is not to be renewed is only watched."""
    world, one = World(), hold(care=Care(keep=False))
    world.keeper.add(one)
    world.run(2 * TTL)
    assert (world.beats, world.dangers) == ([], [])
    assert world.losses == [(one.deadline, one)]
    assert "not to be renewed" in one.why


def test_renewed_by_hand() -> None:
    """A lease that its holder renews by hand is not lost at its old deadline."""
    world, one = World(), hold(care=Care(keep=False))
    world.keeper.add(one)
    world.run(TTL // 2)
    one.extend(one.holder, world.now)
    world.run(TTL + TTL // 4)
    assert world.losses == []
    world.run(2 * TTL)
    assert world.losses == [(one.deadline, one)]


def test_a_hold_that_comes_in_late() -> None:
    """A grant whose reply was slow is looked at in time, though it is nearly over."""
    world = World()
    world.now = TTL - TTL // 50
    one = hold(at=0)
    world.answers = lambda hold: False
    world.keeper.add(one)
    world.run(TTL)
    assert world.losses == [(one.deadline, one)]


def test_discarded_holds_are_left_alone() -> None:
    """Neither a beat nor a loss for what was released, whenever it was."""
    world = World()
    early, late = hold("early"), hold("late")
    world.keeper.add(early)
    world.keeper.add(late)
    world.keeper.discard(early)
    world.run(TTL)
    world.keeper.discard(late)
    world.keeper.discard(late)
    before = len(world.beats)
    world.run(5 * TTL)
    assert len(world.beats) == before
    assert world.losses == []
    assert (len(world.keeper), world.keeper.holds()) == (0, [])


def test_stale_timers_are_swept() -> None:
    """Leases that come and go leave no heap of timers behind."""
    world = World()
    for number in range(5000):
        one = hold(str(number), at=world.now)
        world.keeper.add(one)
        if number % 100 == 0:
            world.run(world.now + PERIOD)
        world.keeper.discard(one)
    assert len(world.keeper._timers) <= STALE_TIMERS + 2
    world.run(world.now + 2 * TTL)
    assert world.keeper.next_at() is None


def test_thousands_of_leases() -> None:
    """Five thousand are kept for ten beats, and the timers stay in proportion."""
    world = World()
    for number in range(5000):
        world.keeper.add(hold(str(number)))
    world.run(4 * TTL)
    assert len(world.beats) >= 5000 * 10
    assert (world.dangers, world.losses) == ([], [])
    assert len(world.keeper._timers) < 4 * 5000


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "discard", "wait"]),
            st.integers(0, 9),
            st.integers(1, TTL // 2),
            st.sampled_from([True, True, False, None]),
        ),
        max_size=40,
    ),
    st.sampled_from([None, 5.0]),
)
@settings(max_examples=150)
def test_every_hold_is_told_or_alive(
    acts: list[tuple[str, int, int, bool | None]], cap: float | None
) -> None:
    """Whatever comes and goes: what is not discarded is either before its deadline or lost."""
    world = World(cap)
    holds: dict[int, Hold] = {}
    for act, which, span, answer in acts:
        world.answers = lambda hold, answer=answer: answer  # type: ignore[misc]
        if act == "add" and which not in holds:
            holds[which] = hold(str(which), at=world.now)
            world.keeper.add(holds[which])
        elif act == "discard" and which in holds:
            world.keeper.discard(holds.pop(which))
        else:
            world.run(world.now + span)
        for one in holds.values():
            assert (one.state == "lost") == any(lost is one for _, lost in world.losses)
            if one.state == "held":
                assert one.deadline >= world.now


def test_nobody_wakes_for_a_stale_timer() -> None:
    """However many leases there are, the keeper looks only when there is something to do."""
    world = World()
    for number in range(300):
        world.keeper.add(hold(f"t{number}", at=number))
    world.run(10 * TTL)
    beaten_at = {at for at, _ in world.beats}
    taken_in = 1
    assert world.polls <= 2 * len(beaten_at) + taken_in  # when a beat is sent, and when it is back


@given(st.integers(0, 3 * PERIOD))
def test_an_outage_of_half_the_ttl_costs_no_lease(begins: int) -> None:
    """Whenever it begins. The docs promise that (choosing a ttl)."""
    world = World()
    world.answers = lambda hold: not begins <= world.now < begins + TTL // 2
    kept = hold()
    world.keeper.add(kept)
    world.run(4 * TTL)
    assert not world.losses
    assert kept.valid(world.now)
