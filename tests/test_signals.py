"""What a signal handler raises comes out as it is, at once, and nothing is broken afterwards."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.stores.waiting import handles, local_poller
from tests.frozen.sites import SITES
from tests.helpers import until

STORM_S = 3.0


class Alarm(Exception):
    """An ordinary exception: `except Exception` catches it."""


def open_files() -> int:
    """How many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def alarm() -> Iterator[None]:
    """SIGALRM raises."""

    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("store", ["dynamodb", "s3"])
def test_it_comes_out_of_a_request(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a driver that takes every exception for trouble with its connection."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with SITES[store]() as (url, freeze, thaw), holdfast.connect(url) as locks:
        locks.acquire("k").release()
        freeze()
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(Alarm):
            locks.show("k")
        thaw()


# A socket that nobody could close yet is closed by Python, with a warning.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_a_storm_while_waiting(scheme: str, tmp_path: Path) -> None:
    """No wait hangs, during the storm and after it; no descriptor is left open."""
    dice = random.Random(7)
    with (
        holdfast.connect(f"{scheme}://{tmp_path}/locks") as others,
        holdfast.connect(f"{scheme}://{tmp_path}/locks") as locks,
    ):
        lease = others.acquire("k")
        before = open_files()
        ends_at = time.monotonic() + STORM_S
        while time.monotonic() < ends_at:
            # Python swallows what is raised inside a finalizer: then the wait ends by its timeout.
            with contextlib.suppress(Alarm, holdfast.AcquireTimeout):
                signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.0001, 0.02))
                locks.acquire("k", timeout=STORM_S)
                pytest.fail("somebody else has it")
        until(lambda: not others.show("k").waiters)
        threading.Timer(0.2, lease.release).start()
        locks.acquire("k", timeout=60).release()
        assert open_files() <= before + 5  # those of threads that linger


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_raised_while_a_thread_is_started(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one who waits starts another, and is woken."""
    start = handles.started

    def interrupted(*_: object) -> bool:
        monkeypatch.setattr(local_poller, "started", start)
        raise Alarm

    url = f"{scheme}://{tmp_path}/locks"
    with holdfast.connect(url) as others, holdfast.connect(url) as locks:
        lease = others.acquire("k")
        monkeypatch.setattr(local_poller, "started", interrupted)
        with pytest.raises(Alarm):
            locks.acquire("k")
        waiting = threading.Thread(target=lambda: locks.acquire("k", fair=True).release())
        waiting.start()
        until(lambda: others.show("k").waiters)
        lease.release()
        waiting.join(60)
        assert not waiting.is_alive()
