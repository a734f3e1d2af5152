"""A lease that goes from task to task."""

from __future__ import annotations

import pytest
from celery import chain, chord

from holdfast import TicketRefused
from tests.integrations.celery import app as tasks
from tests.integrations.celery.conftest import World
from tests.integrations.celery.journal import overlaps

pytestmark = pytest.mark.usefixtures("worker")

WITHIN = 40.0


def _names(world: World, item: str) -> list[str]:
    return [run["name"] for run in world.runs(item) if run["what"] == "begin"]


def test_a_chain_hands_over(world: World, item: str) -> None:
    """The next task in a chain takes the lease, with a larger fence."""
    linked = chain(tasks.first_step.s(item), tasks.next_step.s(item)).delay()
    before, after = linked.get(timeout=WITHIN)
    assert after > before
    assert _names(world, item) == ["first_step", "next_step"]
    assert world.free(item)


def test_nobody_gets_in_between(world: World, item: str) -> None:
    """Those who wait for the lock come after the chain, though they came before its end."""
    linked = chain(tasks.first_step.s(item), tasks.next_step.s(item)).delay()
    world.journal.wait_for("begin", key=f"item:{item}")
    others = [tasks.waits.delay(item) for _ in range(2)]
    linked.get(timeout=WITHIN)
    for other in others:
        other.get(timeout=WITHIN)
    assert _names(world, item)[:2] == ["first_step", "next_step"]
    assert overlaps(world.runs(item)) == []


def test_a_callback_takes_over(world: World, item: str) -> None:
    """A single `link` callback is what follows, too."""
    tasks.first_step.apply_async((item,), link=tasks.next_step.s(item)).get(timeout=WITHIN)
    world.journal.wait_for("end", name="next_step", key=f"item:{item}")
    first, following = (run for run in world.runs(item) if run["what"] == "begin")
    assert following["fence"] > first["fence"]


def test_the_body_of_a_chord_takes_over(world: World, item: str) -> None:
    """While the header runs the lock stays taken, and the body gets the lease."""
    fan_out = chord([tasks.plain.s(1), tasks.plain.s(2)], tasks.next_step.s(item))
    fan_out.tasks = [sig.set(immutable=True) for sig in fan_out.tasks]
    linked = chain(tasks.first_step.s(item), fan_out).delay()
    numbers, _ = linked.get(timeout=WITHIN)
    assert numbers == [1, 2]
    first, body = (run for run in world.runs(item) if run["what"] == "begin")
    assert body["fence"] > first["fence"]


def test_nothing_follows(world: World, item: str) -> None:
    """With nobody to hand it to, the lease is released."""
    tasks.first_step.delay(item).get(timeout=WITHIN)
    assert world.free(item)


def test_a_task_sends_the_next_itself(world: World, item: str) -> None:
    """`hand_over_to` gives the lease to a task that is sent by hand."""
    fence = tasks.sends_the_next.delay(item).get(timeout=WITHIN)
    world.journal.wait_for("end", name="next_step", key=f"item:{item}")
    (following,) = world.journal.entries("begin", name="next_step", key=f"item:{item}")
    assert following["fence"] > fence


def test_a_ticket_as_an_argument(world: World, item: str) -> None:
    """A ticket may be a result, and the next task's argument."""
    linked = chain(tasks.returns_a_ticket.s(item), tasks.takes_a_ticket.s(item)).delay()
    assert linked.get(timeout=WITHIN) > 0
    assert _names(world, item) == ["returns_a_ticket", "takes_a_ticket"]
    assert tasks.takes_a_ticket.delay(None, item).get(timeout=WITHIN) > 0


def test_the_ttl_frees_what_nobody_takes(world: World, item: str) -> None:
    """If the next task does not start in time, others get in."""
    tasks.sends_the_next.delay(item, within=0.5, countdown=60).get(timeout=WITHIN)
    tasks.waits.delay(item).get(timeout=WITHIN)
    assert _names(world, item) == ["sends_the_next", "waits"]


def test_a_ticket_is_good_once(world: World, item: str) -> None:
    """A ticket that was used is refused where the task insists on it."""
    ticket = world.locks.acquire(f"item:{item}").hand_over(ttl=30)
    assert tasks.takes_a_ticket.delay(ticket, item).get(timeout=WITHIN) > 0
    with pytest.raises(TicketRefused):
        tasks.takes_a_ticket.delay(ticket, item).get(timeout=WITHIN)
