"""Many processes on one key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.api.locks import Locks
from tests.stores.dynamodb.lab import Lab

PROCESSES, TIMES = 8, 50


@pytest.mark.timeout(300)
def test_no_increment_is_lost(lab: Lab, tmp_path: Path) -> None:
    """8 processes count up 50 times each, and no fence is given out twice."""
    store = lab.store()
    url = lab.url(store.options.table, poll_s=0.05)
    counter = tmp_path / "count"
    counter.write_text("0")
    command = [sys.executable, "-m", "tests.stores.dynamodb.test_crowd", url, str(counter)]
    here = Path(__file__).parents[3]
    crowd = [
        subprocess.Popen([*command, str(number)], cwd=here, stdout=subprocess.PIPE)
        for number in range(PROCESSES)
    ]
    try:
        said = [member.communicate(timeout=250)[0] for member in crowd]
    finally:
        for member in crowd:
            member.kill()
    assert [member.returncode for member in crowd] == [0] * PROCESSES
    assert counter.read_text() == str(PROCESSES * TIMES)
    fences = [int(fence) for output in said for fence in output.split()]
    assert len(set(fences)) == PROCESSES * TIMES
    with Locks(store) as locks:
        assert locks.show("counter").free


def count_up(url: str, counter: Path, number: int) -> None:
    """Read, add one and write, under the lock; every fourth one queues for it."""
    fair = None if number % 4 == 0 else False
    with holdfast.connect(url, ttl=60) as locks:
        for _ in range(TIMES):
            with locks.acquire("counter", timeout=200, fair=fair) as lease:
                counter.write_text(str(int(counter.read_text()) + 1))
                sys.stdout.write(f"{lease.fence}\n")


if __name__ == "__main__":
    count_up(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
