"""The driver for tooz: its own tests, and what they do not ask."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.engines.redis import RedisServer
from tests.engines.shared import shared
from tests.helpers import unique
from tests.pages import code

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # tooz imports what imports eventlet, which is deprecated
    import tooz
    from tooz import coordination
    from tooz.coordination import Characteristics, ToozConnectionError

ROOT = Path(__file__).parents[2]

# tooz's tests that are not for this driver, and why. Those of groups go by their names.
GROUPS = re.compile("group|member|capabilities")
NOT_OURS = {
    "test_connection_error_bad_host": "makes a URL of the scheme alone; ours needs the store's",
    "test_heartbeat": "leases are renewed in the background: there is no heartbeat to call",
    "test_heartbeat_loop": "the same",
    "test_timeout": "is about groups, with an option `timeout` in the URL",
}


def test_the_tests_of_tooz() -> None:
    """All about locks and leaders pass, on Redis; the others are named above."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.integrations.tooz_suite",
         f"holdfast:{shared(RedisServer).url}"],
        cwd=ROOT, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    outcomes: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    ours = {name: said for name, said in outcomes.items() if said == "passed"}
    rest = {name: said for name, said in outcomes.items() if said != "passed"}
    assert set(NOT_OURS) <= set(rest)
    assert {name: said for name, said in rest.items() if not GROUPS.search(name)} == {
        name: rest[name] for name in NOT_OURS
    }
    assert all(said.startswith("skipped") for name, said in rest.items() if name not in NOT_OURS)
    assert len(ours) >= 36, ours


@pytest.fixture
def url() -> str:
    """A store of its own."""
    return f"memory://{unique()}"


@pytest.fixture
def coordinator(url: str) -> Iterator[Any]:
    """A coordinator that was started."""
    found = coordination.get_coordinator(f"holdfast:{url}?ttl=45", b"host-1")
    found.start()
    yield found
    if found.is_started:
        found.stop()


def test_it_is_a_lock_of_holdfast(coordinator: Any, url: str) -> None:
    """Others see who holds it, for how long, and with which fence."""
    with holdfast.connect(url) as locks, coordinator.get_lock(b"volume-7") as lock:
        (holder,) = locks.show("tooz:lock:volume-7").holders
        assert (holder.owner, holder.ttl, holder.fence) == ("host-1", 45, lock.fence)
        assert (lock.acquired, lock.is_still_owner()) == (True, True)
        locks.evict("tooz:lock:volume-7")
        assert not lock.is_still_owner()
        assert not lock.acquired


def test_every_name_has_its_own_lock(coordinator: Any) -> None:
    """Names are bytes, and any bytes will do."""
    names = [b"a", b"A", b"a ", b"a%20", b"\xff", b"%FF", "é".encode(), b"leader:x"]
    held = [coordinator.get_lock(name) for name in names]
    assert [lock.acquire(blocking=False) for lock in held] == [True] * len(names)


def test_a_forgotten_lock_object_stays_held(coordinator: Any) -> None:
    """As with tooz's own drivers: until it is released, or the coordinator stops."""
    coordinator.get_lock(b"x").acquire()
    gc.collect()
    assert not coordinator.get_lock(b"x").acquire(blocking=False)
    coordinator.stop()
    coordinator.start()
    assert coordinator.get_lock(b"x").acquire(blocking=False)


def test_stop_frees_what_is_held(coordinator: Any, url: str) -> None:
    """At once, also what the caller has forgotten."""
    for number in range(30):  # the keeper's thread must not be told first that nobody refers to it
        name = f"volume-{number}".encode()
        other = coordination.get_coordinator(f"holdfast:{url}", b"host-2")
        other.start()
        other.get_lock(name).acquire()
        other.stop()
        assert coordinator.get_lock(name).acquire(blocking=False)


def test_a_late_release_frees_nobody_else(coordinator: Any) -> None:
    """Two threads share a lock object, and the first one's lease was broken."""
    lock = coordinator.get_lock(b"x")
    assert lock.acquire()
    lock.break_()
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lock.acquire).result(20)
        assert not lock.release()
        assert not coordinator.get_lock(b"x").acquire(blocking=False)
        assert other.submit(lock.release).result(20)


def test_a_leader_that_was_lost_before_stands_down(coordinator: Any, url: str) -> None:
    """Also when another thread than the one that runs the election asks for it."""
    group = unique().encode()
    elected: list[Any] = []
    coordinator.watch_elected_as_leader(group, elected.append)
    coordinator.run_watchers()
    with holdfast.connect(url) as locks:
        for term in (2, 3):
            (key,) = [lock.key for lock in locks.list() if group.decode() in lock.key]
            locks.evict(key)
            assert not coordinator._leader_lock(group).is_still_owner()
            coordinator.run_watchers()
            assert len(elected) == term
        with ThreadPoolExecutor(1) as another:
            assert another.submit(coordinator.stand_down_group_leader, group).result(20)
        assert locks.show(key).free
        assert coordinator.get_leader(group).get() is None


def test_a_leader_from_elsewhere_has_a_name(coordinator: Any, url: str) -> None:
    """One that does not lead through tooz is known by its owner."""
    with holdfast.connect(url, owner="somebody") as locks:
        with locks.acquire(coordinator._key("leader", b"group")):
            assert coordinator.get_leader(b"group").get() == b"somebody"


def test_errors_are_those_of_tooz(url: str) -> None:
    """With what to do, and with ours as their cause."""

    def start(backend: str, **options: Any) -> None:
        coordination.get_coordinator(backend, b"host-1", **options).start()

    with pytest.raises(ToozConnectionError, match="cannot be reached") as away:
        start("holdfast:redis://127.0.0.1:1/0")
    assert isinstance(away.value.__cause__, holdfast.Unavailable)
    for wrong, says in {
        "holdfast://127.0.0.1:1/0": "after `holdfast:`",
        "holdfast:nope://x": "no store for nope",
        f"holdfast:{url}?ttl=soon": "ttl is a number",
        f"holdfast:{url}?bogus=1": "bogus",
    }.items():
        with pytest.raises(tooz.ToozError, match=says):
            start(wrong)
    with pytest.raises(tooz.ToozError, match="bogus"):
        start(f"holdfast:{url}", bogus=1)
    with pytest.raises(tooz.ToozError, match="not started"):
        coordination.get_coordinator(f"holdfast:{url}", b"x").get_lock(b"x").acquire()


def test_characteristics_are_those_of_the_store(url: str, tmp_path: Path) -> None:
    """A program can ask for what it needs, and is refused a store that lacks it."""
    need = [Characteristics.DISTRIBUTED_ACROSS_HOSTS]
    coordination.get_coordinator(f"holdfast:{shared(RedisServer).url}", b"x", need)
    for near in (url, f"sqlite://{tmp_path}/locks.db"):
        with pytest.raises(coordination.ToozDriverChosenPoorly):
            coordination.get_coordinator(f"holdfast:{near}", b"x", need)


def test_without_a_url_it_is_the_usual_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """$HOLDFAST_URL, as everywhere."""
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite://{tmp_path}/locks.db")
    for short in ("holdfast:", "holdfast://"):
        coordinator = coordination.get_coordinator(short, b"host-1", namespace="nova:")
        coordinator.start()
        with holdfast.connect() as locks, coordinator.get_lock(b"x"):
            assert not locks.show("nova:lock:x").free
        coordinator.stop()


def test_the_page_works_as_pasted() -> None:
    """The program is the one that tooz's users have."""
    (example,) = code("moving/tooz.md", "What is the same")
    assert "redis://cache:6379/3" in example
    exec(example.replace("redis://cache:6379/3", shared(RedisServer).url), {})


def test_a_rolling_move() -> None:
    """The page's function for the time between: whoever has it excludes workers that are still on
    tooz's own driver, and those that have moved already."""
    (example,) = code("moving/tooz.md", "A rolling move")
    server = shared(RedisServer)
    for place in ("redis://cache:6379", "holdfast:redis://cache:6379/3"):
        assert f'"{place}"' in example
    example = example.replace("redis://cache:6379/3", server.url)
    example = example.replace("redis://cache:6379", f"redis://127.0.0.1:{server.port}")
    names: dict[str, Any] = {"name": b"host-1"}
    exec(example, names)
    old, new, both = names["old"], names["new"], names["both"]
    try:
        volume = unique().encode()
        for one in (old, new):
            with both(volume):
                assert not one.get_lock(volume).acquire(blocking=False)
            with one.get_lock(volume), pytest.raises(coordination.LockAcquireFailed):
                with both(volume, blocking=False):
                    pytest.fail("it has the lock that a worker holds")
            assert one.get_lock(volume).acquire(blocking=False)
            one.stop()
            one.start()
    finally:
        old.stop()
        new.stop()
