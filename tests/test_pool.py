"""The small pool of daemon threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from holdfast.runtime.pool import DaemonPool

LONG_S = 60


@pytest.fixture
def pool() -> Iterator[DaemonPool]:
    """One with a single thread."""
    pool = DaemonPool(1, "test-pool")
    yield pool
    pool.close()


def boom() -> None:
    """A call that fails badly."""
    raise SystemExit("boom")


def test_what_nobody_waits_for_does_not_fail_silently(
    pool: DaemonPool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the thread goes on."""
    with caplog.at_level(logging.ERROR, "holdfast"):
        pool.run(boom)
        assert pool.submit(threading.current_thread).result(LONG_S).name == "test-pool"
    [logged] = caplog.records
    assert logged.exc_info is not None
    assert isinstance(logged.exc_info[1], SystemExit)


def test_who_waits_gets_the_exception(pool: DaemonPool) -> None:
    """And it is theirs to log."""
    with pytest.raises(SystemExit, match="boom"):
        pool.submit(boom).result(LONG_S)


def test_after_its_end_a_call_still_runs(pool: DaemonPool) -> None:
    """In a thread of its own, also while the pool's is busy."""
    busy, done = threading.Event(), threading.Event()
    pool.run(lambda: busy.wait(LONG_S))
    pool.close()
    pool.run(done.set)
    assert done.wait(LONG_S)
    assert pool.submit(lambda: 7).result(LONG_S) == 7
    busy.set()


def test_a_thread_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be run stands in line for the threads that there are."""
    pool, busy = DaemonPool(2, "test-pool"), threading.Event()
    pool.run(lambda: busy.wait(LONG_S))

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    waiting = pool.submit(lambda: 7)
    busy.set()
    assert waiting.result(LONG_S) == 7
    pool.close()
    with pytest.raises(RuntimeError, match="new thread"):
        DaemonPool(2, "test-pool").submit(lambda: 7)


def test_threads_can_be_had_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stood in line meanwhile does not make a busy thread look idle afterwards."""
    pool, first, second = DaemonPool(2, "test-pool"), threading.Event(), threading.Event()
    pool.run(lambda: first.wait(LONG_S))

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def keep_busy() -> None:
        began.set()
        second.wait(LONG_S)

    began = threading.Event()
    with monkeypatch.context() as shortage:
        shortage.setattr(threading.Thread, "start", fail)
        pool.run(keep_busy)
    first.set()
    assert began.wait(LONG_S)
    try:
        assert pool.submit(lambda: 7).result(5) == 7
    finally:
        second.set()
        pool.close()
