"""A grant as its holder knows it: until when it is trusted, and how it ends."""

from __future__ import annotations

import pytest

from holdfast.core.commands import Claim, Command, Evict, Free, Granted, Offer, Renew, Take
from holdfast.core.holds import Attempt, Care, Hold, State, hold_of
from holdfast.core.records import SECOND, Holder
from holdfast.core.validity import deadline

TTL = 10 * SECOND
HOLDER = Holder("t", 1, "me", "exclusive", TTL, 0, TTL, "b")


@pytest.fixture
def hold() -> Hold:
    """One whose write was sent at 0."""
    return hold_of("k", Granted(HOLDER), 0, Care())


@pytest.mark.parametrize("first", ["released", "handed over", "lost"])
@pytest.mark.parametrize("then", ["released", "lost"])
def test_it_ends_once(hold: Hold, first: State, then: State) -> None:
    """Who comes second learns that it comes too late, and does not change why it ended."""
    assert hold.end(first, "because")
    assert not hold.end(then, "something else")
    assert (hold.state, hold.why) == (first, "because")
    assert not hold.valid(0)


def test_a_renewal_that_was_overtaken_does_not_shorten_it(hold: Hold) -> None:
    """Two beats may come back in another order than they were sent in."""
    hold.extend(HOLDER, 3 * SECOND)
    hold.extend(HOLDER, 2 * SECOND)
    assert hold.renewed == 3 * SECOND
    assert hold.deadline == deadline(3 * SECOND, TTL)
    assert hold.valid(hold.deadline - 1)
    assert not hold.valid(hold.deadline)


@pytest.mark.parametrize(
    ("command", "left"),
    [
        (Claim("t", "me", "exclusive", TTL), ("t",)),
        (Take("ticket", "t", "me", TTL), ("t",)),
        (Free("t"), ("t",)),
        (Offer("t", "ticket", TTL), ("t", "ticket")),
        (Renew("t"), ()),  # joining: the lease is another party's
        (Evict((1,)), ()),
    ],
)
def test_what_an_attempt_may_have_left(command: Command, left: tuple[str, ...]) -> None:
    """What is its own is taken out of the store if it fails, and nothing else is."""
    assert Attempt("k", command).leftovers() == ()
    assert Attempt("k", command, touched=True).leftovers() == left
