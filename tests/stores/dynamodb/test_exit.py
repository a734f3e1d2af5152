"""What is still held when a program ends, and is released by what Python runs last."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast
from tests.stores.dynamodb.lab import Lab

# By then boto3 is half gone, and cannot send anything any more.
LAST = {
    "a finalizer": """
class Job:
    def __init__(self):
        self.lease = locks.acquire("k", ttl=600)

    def __del__(self):
        self.lease.release()

job = Job()
""",
    "a cycle": """
class Job:
    def __init__(self):
        self.lease = locks.acquire("k", ttl=600)
        self.itself = self

    def __del__(self):
        self.lease.release()

job = Job()
""",
    "a pending generator": """
def work():
    with locks.acquire("k", ttl=600):
        yield

pending = work()
next(pending)
""",
}


@pytest.mark.parametrize("last", LAST.values(), ids=LAST)
def test_released_at_the_very_end(lab: Lab, last: str) -> None:
    """Nothing is printed, and the lock is free."""
    url = lab.url(lab.store().options.table)
    program = f"import holdfast\nlocks = holdfast.connect({url!r})\n{last}"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with holdfast.connect(url) as locks:
        assert locks.show("k").free
