"""Local stores in a process that cannot open one more file: the true cause, and no lasting harm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FILLED = """
import os, resource, contextlib

@contextlib.contextmanager
def filled(left=0):
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    filler = []
    try:
        while True:
            filler.append(os.dup(0))
    except OSError:
        for _ in range(left):
            os.close(filler.pop())
    try:
        yield
    finally:
        for one in filler:
            os.close(one)
"""

# For all `left` from none to as many as are needed: connect, acquire and release. Whatever the
# number, each must either succeed or say what is missing; and afterwards all is well again.
NEW_CLIENT = (
    FILLED
    + """
import sys, holdfast
from holdfast.stores import directory
from holdfast.stores.sqlite import SQLiteStore
url = sys.argv[1]
holdfast.connect("memory://").acquire("k").release()
with holdfast.connect(url) as warm:  # imports everything
    warm.setup()
    warm.acquire("k", keep=False).release()

def outcome(act):
    try:
        act()
    except holdfast.HoldfastError as error:
        return f"{type(error).__name__} {error}"
    return "done"

def use():
    with holdfast.connect(url, store_patience=0.1) as locks:
        locks.setup()
        locks.acquire("k", keep=False, timeout=0).release()

for left in range(8):
    with filled(left):
        said = outcome(use)
    print(left, said)
    assert outcome(use) == "done"
"""
)


# What a store is made of is loaded when it is first used.
NOTHING_LOADED = (
    FILLED
    + """
import sys, holdfast
from holdfast import connect
from holdfast.api import store_source
import urllib.parse
with filled(int(sys.argv[2])):
    try:
        connect(sys.argv[1])
        said = "done"
    except holdfast.HoldfastError as error:
        said = f"{type(error).__name__} {error}"
print(said)
connect(sys.argv[1]).close()
"""
)

# Somebody waits; then nothing can be opened for a while, neither by who waits nor by who looks for
# those who wait; then all is well again, and who looks is back before the lock is released.
WAITING = (
    FILLED
    + """
import sys, threading, time, holdfast
def looking():
    return [t for t in threading.enumerate() if t.name in ("holdfast-watch", "holdfast-poll")]

def until(true):
    ends_at = time.monotonic() + 20
    while not true():
        assert time.monotonic() < ends_at
        time.sleep(0.01)

with holdfast.connect(sys.argv[1]) as locks, holdfast.connect(sys.argv[1]) as other:
    lease = other.acquire("k", ttl=60)
    other.acquire("a", ttl=60)
    got = []
    when = sys.argv[2]
    def wait(key):
        with locks.acquire(key, timeout=60):
            got.append(key)

    threads = [threading.Thread(target=wait, args=(key,)) for key in "ka"]
    if when == "before":
        with filled():
            for thread in threads: thread.start()
            time.sleep(0.5)
    else:
        for thread in threads: thread.start()
        until(looking)
        store = locks._client.store
        store.pause()
        with filled():
            store.resume()
            time.sleep(0.5)
    assert not got
    assert all(thread.is_alive() for thread in threads)
    until(looking)
    lease.release()
    threads[0].join(30)
    print(*got)
    sys.stdout.flush()
    os._exit(0)
"""
)


def run(*words: str) -> str:
    """What a program says."""
    ran = subprocess.run(
        [sys.executable, "-c", *words], capture_output=True, text=True, timeout=90, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stdout


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_those_who_wait_get_over_it(scheme: str, when: str, tmp_path: Path) -> None:
    """A wait goes on, and whoever looks for those who wait comes back."""
    assert run(WAITING, f"{scheme}://{tmp_path}/locks", when) == "k\n"


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
@pytest.mark.parametrize("left", range(3))
def test_nothing_is_loaded_yet(scheme: str, left: int, tmp_path: Path) -> None:
    """Not even the code of the store can be read then: that is no missing driver."""
    said = run(NOTHING_LOADED, f"{scheme}://{tmp_path}/locks", str(left))
    if said != "done\n":
        assert said.startswith("Unavailable")
        assert "ulimit -n" in said


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_a_new_client_without_descriptors(scheme: str, tmp_path: Path) -> None:
    """With however few left: it works, or it is `Unavailable` for want of descriptors."""
    lines = run(NEW_CLIENT, f"{scheme}://{tmp_path}/locks").splitlines()
    said = dict(line.split(" ", 1) for line in lines)
    assert len(said) == 8
    assert said["0"] != "done"
    for outcome in said.values():
        if outcome != "done":
            assert outcome.startswith("Unavailable"), said
            assert "file descriptor" in outcome
            assert "ulimit -n" in outcome
    assert said["7"] == "done"
