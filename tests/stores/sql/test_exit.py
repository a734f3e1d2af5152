"""Programs that end, or go on, without closing their client: there is no noise about it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast
from tests.stores.sql.servers import Server

pytestmark = pytest.mark.timeout(90)

INTERRUPTED = """
async def main():
    locks = aio.connect(sys.argv[1])
    asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGINT)
    await locks.acquire("held")

asyncio.run(main())
"""

DROPPED_LATER = """
async def main():
    locks = aio.connect(sys.argv[1])
    async with locks.acquire("dropped", timeout=10):
        return locks

locks = asyncio.run(main())
del locks
gc.collect()
"""

STILL_THERE = """
async def main():
    locks = aio.connect(sys.argv[1])
    async with locks.acquire("there", timeout=10):
        return locks

keep = sys.modules["keep"] = asyncio.run(main())
"""

ANOTHER_LOOP = """
async def main():
    async with locks.acquire("loops", timeout=10):
        pass

locks = aio.connect(sys.argv[1])
asyncio.run(main())
asyncio.run(main())
"""

PROGRAMS = {
    "interrupted": INTERRUPTED,
    "dropped later": DROPPED_LATER,
    "still there": STILL_THERE,
    "another loop": ANOTHER_LOOP,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_noise_about_a_client_that_was_not_closed(server: Server, name: str) -> None:
    """Nothing is said of an event loop that is closed, and nothing else is ignored."""
    program = f"import asyncio, gc, os, signal, sys\nfrom holdfast import aio\n{PROGRAMS[name]}"
    command = [sys.executable, "-c", program, server.url()]
    with holdfast.connect(server.url()) as locks, locks.acquire("held"):
        run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "Event loop is closed" not in run.stderr, run.stderr
    assert "ignored" not in run.stderr, run.stderr
    assert ("KeyboardInterrupt" in run.stderr) is (name == "interrupted")


FORKED = """
import asyncio, os, sys
from holdfast.stores.registry import open_store
from holdfast.stores.sql.protocol import Query

async def session(store):
    which = "pg_backend_pid" if sys.argv[1].startswith("postgresql") else "CONNECTION_ID"
    return (await store.transport.execute(Query(f"SELECT {which}()"))).rows

loop = asyncio.new_event_loop()
store = open_store(sys.argv[1]).to_async()
before = loop.run_until_complete(session(store))
if os.fork() == 0:
    sys.exit(0)  # through the interpreter's end
assert os.wait()[1] == 0
print(loop.run_until_complete(session(store)) == before)
loop.run_until_complete(store.close())
loop.close()
"""


def test_a_forked_child_that_ends_leaves_the_sessions_of_its_parent(server: Server) -> None:
    """What closes connections when a program ends does not do so in a child, whose they are not."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED, server.url()]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.stdout.splitlines() == ["True"], run.stderr
