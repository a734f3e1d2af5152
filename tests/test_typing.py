"""What a type checker tells our users."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

RIGHT = """
import asyncio
import datetime
import holdfast
from holdfast import aio

locks = holdfast.connect("memory://", ttl=datetime.timedelta(seconds=5))
reveal_type(locks)  # Locks
with locks.acquire("k", ttl=60, timeout=1.5, note={"a": 1}) as lease:
    reveal_type(lease)  # Lease
    reveal_type(lease.fence)  # int
    reveal_type(lease.lost.wait(1))  # bool
    reveal_type(lease.share())  # str
    reveal_type(lease.wanted)  # tuple[WaiterInfo, ...]
reveal_type(locks.try_acquire("k"))  # Lease | None
reveal_type(lease.release())  # bool
with locks.acquire_all(["a", holdfast.Want("b", mode="shared")]) as leases:
    reveal_type(leases)  # Leases
    for one in leases:
        reveal_type(one)  # Lease
for holder in locks.holders("x"):
    reveal_type(holder)  # HolderInfo

@locks.guard("k:{x}", busy="skip")
def run(x: int, *, y: str = "") -> float:
    return x / 2

reveal_type(run(1, y="z"))  # float | None

@locks.guard("k:{x}", timeout=5)
def waits(x: int) -> float:
    return x / 2

reveal_type(waits(1))  # float
reveal_type(leases["a"])  # Lease
reveal_type(leases[0])  # Lease
reveal_type(locks.facts)  # Facts
reveal_type(holdfast.aio.connect("memory://").acquire("k"))  # Acquiring[Lease]

@lease.on_lost
def stop(lost: holdfast.Lease) -> None: ...

lease.on_danger(lambda held: print(reveal_type(held.remaining())))  # float

async def main() -> None:
    locks = aio.connect("memory://")
    async with locks.acquire("k") as lease:
        reveal_type(lease)  # Lease
        reveal_type(lease.lost)  # Event
        reveal_type(await lease.release())  # bool
    reveal_type(await locks.acquire("k"))  # Lease
    reveal_type(await locks.try_acquire("k"))  # Lease | None
    reveal_type(await asyncio.create_task(locks.acquire("k")))  # Lease
    async with locks.acquire_all(["a"]) as leases:
        reveal_type(leases)  # Leases
    async for holder in locks.holders():
        reveal_type(holder)  # HolderInfo

    @locks.guard("k:{x}")
    async def run(x: int) -> str:
        return ""

    reveal_type(await run(1))  # str

    @locks.guard("k:{x}", busy="skip")
    async def skips(x: int) -> str:
        return ""

    reveal_type(await skips(1))  # str | None
"""

WRONG = """
import holdfast
from holdfast import aio

locks = holdfast.connect("memory://")
locks.acquire(5)
locks.acquire("k", ttl="60")
locks.acquire("k", 60)
locks.acquire("k", limit="3")
locks.try_acquire("k").release()
locks.guard("k", busy="perhaps")
locks.acquire_all([1])
with aio.connect().acquire("k"): pass
locks.acquire("k").on_lost(lambda: None)
locks.acquire("k").on_danger(print("hurry"))

@locks.guard("k")
def run(x: int) -> None: ...

run("x")
"""


def mypy(source: str, tmp_path: Path) -> str:
    """What mypy says of a program, strictly."""
    program = tmp_path / "program.py"
    program.write_text(source)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context",
         str(program)],
        capture_output=True, text=True, check=False,
        cwd=Path(__file__).parents[1],
    )  # fmt: skip
    return ran.stdout + ran.stderr


def short(revealed: str) -> str:
    """A type without its modules."""
    return re.sub(r"[a-zA-Z_.]*\.([A-Za-z_]+)", r"\1", revealed).replace("builtins.", "")


def test_right_uses_have_their_types(tmp_path: Path) -> None:
    """A correct program has no errors, and everything in it a precise type."""
    said = mypy(RIGHT, tmp_path)
    assert "error:" not in said, said
    revealed = {
        int(line): short(kind)
        for line, kind in re.findall(r'program\.py:(\d+): note: Revealed type is "(.*)"', said)
    }
    expected = {
        number: line.split("# ")[1]
        for number, line in enumerate(RIGHT.splitlines(), 1)
        if "reveal_type" in line
    }
    revealed = {line: kind.replace("Union[", "").rstrip("]") if "Union" in kind else kind
                for line, kind in revealed.items()}  # fmt: skip
    assert {k: v.replace(", None", " | None") for k, v in revealed.items()} == expected


def test_wrong_uses_fail(tmp_path: Path) -> None:
    """Each mistake is found, on its own line."""
    said = mypy(WRONG, tmp_path)
    found = {int(line) for line in re.findall(r"program\.py:(\d+): error", said)}
    lines = WRONG.splitlines()
    mistakes = {
        number for number, line in enumerate(lines, 1)
        if line.startswith(("locks.", "with ", "run("))
    }  # fmt: skip
    assert found == mistakes, said
