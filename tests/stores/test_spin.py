"""Looking for an answer before sleeping for it: when it is done, and when it is left out."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import closing

import pytest

from holdfast.stores import spin
from holdfast.stores.memory import MemoryStore
from holdfast.stores.spin import MOST_LEFT_OUT, SpinWait, poll_of


@pytest.fixture(autouse=True)
def _rested(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test before may have waited for a lock."""
    monkeypatch.setattr(spin, "_resting_until", 0.0)


class Answers:
    """Says whether an answer is there, and counts how often it was asked."""

    def __init__(self, there: bool = False) -> None:
        self.there = there
        self.asked = 0

    def poll(self, _: int) -> list[object]:
        """As a poller would."""
        self.asked += 1
        return ["something"] if self.there else []

    def looks(self, glances: SpinWait, times: int) -> int:
        """In how many of so many exchanges somebody looked."""
        looks = 0
        for _ in range(times):
            before = self.asked
            glances.look(self.poll)
            looks += self.asked > before
        return looks


def test_an_answer_that_is_there_ends_the_look() -> None:
    """And the next one is looked for again."""
    answers, glances = Answers(there=True), SpinWait(60, lambda: True)
    assert answers.looks(glances, 10) == 10
    assert answers.asked == 10


def test_looks_in_vain_become_rare() -> None:
    """Twice as many are left out each time, up to a limit, until one is of use again."""
    answers, glances = Answers(), SpinWait(0, lambda: True)
    assert answers.looks(glances, 1 + 1) == 1
    assert answers.looks(glances, 1 + 3) == 1
    assert answers.looks(glances, 1 + 7) == 1
    answers.looks(glances, 3 * MOST_LEFT_OUT)
    answers.there = True
    assert answers.looks(glances, MOST_LEFT_OUT + 1 + 50) >= 51


def test_nobody_looks_after_a_wait_for_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds it may need the processor; after a moment it is over."""
    answers, glances = Answers(there=True), SpinWait(60, lambda: True)
    with closing(MemoryStore()) as store:
        store.wait("k", None, "t", 1000)
    assert answers.looks(glances, 10) == 0
    monkeypatch.setattr(spin, "_resting_until", 0.0)
    assert answers.looks(glances, 10) == 10


def test_nobody_looks_beside_others() -> None:
    """Who is not alone goes to sleep at once; and where nothing can be asked, so does everyone."""
    answers = Answers(there=True)
    assert answers.looks(SpinWait(60, lambda: False), 10) == 0
    SpinWait(60, lambda: True).look(None)


def test_poll_sees_what_has_come() -> None:
    """On a real socket, and on one that was closed meanwhile: then the reader will say so."""
    here, there = socket.socketpair()
    poll = poll_of(here.fileno())
    assert poll is not None
    assert not poll(0)
    there.send(b"x")
    assert poll(0)
    there.close()
    here.close()
    assert poll(0)


@pytest.mark.parametrize("library", ["gevent.monkey.patch_all", "eventlet.monkey_patch"])
@pytest.mark.parametrize("patched", ["before", "after"])
def test_not_where_other_tasks_would_stand_still(library: str, patched: str) -> None:
    """Under gevent and eventlet nobody looks, whether they came before us or after."""
    module, call = library.rsplit(".", 1)
    lines = [f"import {module}; {module}.{call}()", "from holdfast.stores import spin"]
    if patched == "after":
        lines.reverse()
    program = "\n".join([*lines, "assert spin.poll_of(0) is None"])
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=60)
