"""There is no thread to be had at the moment, for who listens or looks for those who wait."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast import AcquireTimeout, Locks
from tests.conformance.targets import TARGETS
from tests.helpers import unique, until

RINGERS = {"holdfast-watch", "holdfast-poll", "holdfast-listen"}


def ringers() -> set[threading.Thread]:
    """The threads that ring those who wait."""
    return {thread for thread in threading.enumerate() if thread.name in RINGERS}


@pytest.mark.parametrize("kind", ["file", "mysql", "postgresql", "redis", "sqlite"])
def test_no_thread_for_those_who_wait(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They look by themselves; and whoever waits when there is one again is rung by it."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    target, key = TARGETS[kind](tmp_path), unique()
    with Locks(target.open()) as locks, Locks(target.open()) as others:
        locks.acquire(unique()).release()  # what it needs for this it has now
        with others.acquire(key):
            before = ringers()
            with monkeypatch.context() as shortage:
                shortage.setattr(threading.Thread, "start", fail)
                with pytest.raises(AcquireTimeout):
                    locks.acquire(key, timeout=0.5)
            assert ringers() <= before
            waiting = threading.Thread(target=lambda: locks.acquire(key).release())
            waiting.start()
            until(lambda: ringers() - before)
        waiting.join()
