"""Where the blocks of a page of the docs run: with the names that they mention, and real stores."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
import sqlalchemy

import holdfast
from holdfast import aio, fencing

LIMIT_S = 30.0


@dataclass
class Desk:
    """What the blocks of a page find there, and the clients that they make."""

    folder: Path
    names: dict[str, Any]
    connected: list[holdfast.Locks | aio.Locks] = field(default_factory=list)

    def run(self, block: str) -> None:
        """One block, awaited if it awaits."""
        code = compile(block, "docs", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, self.names))
        else:
            exec(code, self.names)

    def define(self, signature: str, body: str) -> Any:
        """Make a block the body of a function, if it returns or belongs into one."""
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        exec(f"def {signature}:\n{lines}", self.names)
        return self.names[signature.partition("(")[0]]

    def lock_with_each(self) -> int:
        """Lock something with every client that blocks have connected, and close it. Returns how
        many there were."""
        count = len(self.connected)
        while self.connected:
            locks = self.connected.pop()
            if isinstance(locks, holdfast.Locks):
                with locks, locks.acquire(f"docs {count}", timeout=LIMIT_S) as lease:
                    assert lease.held
            else:
                asyncio.run(_lock_with(locks, f"docs {count}"))
        return count

    def shell(self, command: str, **more: str) -> str:
        """Run a command as pasted. Returns what it printed."""
        done = subprocess.run(
            ["sh", "-eu", "-c", command], cwd=self.folder, env=self.environment(**more),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def started(self, command: str, says: str) -> Iterator[None]:
        """Run a command that does not end by itself, from when it has said this on."""
        output = self.folder / "output"
        with output.open("w") as file:
            process = subprocess.Popen(
                ["sh", "-eu", "-c", f"exec {command}"], cwd=self.folder, env=self.environment(),
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        try:
            ends_at = time.monotonic() + LIMIT_S
            while says not in output.read_text():
                assert process.poll() is None, output.read_text()
                assert time.monotonic() < ends_at, output.read_text()
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            try:
                process.wait(LIMIT_S)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(LIMIT_S)

    def environment(self, **more: str) -> dict[str, str]:
        """That of the test, with the commands that are installed beside this Python."""
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        return {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", **more}

    def script(self, name: str, text: str = "true") -> None:
        """Write one of the programs that the reader has."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


async def _lock_with(locks: aio.Locks, key: str) -> None:
    async with locks, locks.acquire(key, timeout=LIMIT_S) as lease:
        assert lease.held


def work(*args: object, **options: object) -> None:
    """Whatever the reader's own function does."""


@contextmanager
def desk_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """Locks in a file, a database, and functions that do nothing."""
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite://{folder}/locks.db")
    monkeypatch.chdir(folder)
    engine = sqlalchemy.create_engine(f"sqlite:///{folder}/data.db")
    names: dict[str, Any] = dict.fromkeys(
        ("load_orders", "refresh", "page_somebody", "make_report", "load", "write"), work
    )
    with ExitStack() as stack:
        locks = stack.enter_context(holdfast.connect())
        stack.callback(engine.dispose)
        stack.callback(lambda: names["engine"].dispose())  # one that a block has made
        names |= {
            "aio": aio, "asyncio": asyncio, "contextmanager": contextmanager, "engine": engine,
            "fencing": fencing, "holdfast": holdfast, "locks": locks, "redis": redis,
            "old_lock": nullcontext(),
        }  # fmt: skip
        desk = Desk(folder, names)
        for face in (holdfast, aio):
            monkeypatch.setattr(face, "connect", _noted(face.connect, desk.connected))
        stack.callback(lambda: _close(names["locks"]))
        yield desk


def _noted(connect: Callable[..., Any], connected: list[Any]) -> Callable[..., Any]:
    """Returns `connect`, which also notes the clients that it makes."""

    def noted(*args: Any, **options: Any) -> Any:
        connected.append(connect(*args, **options))
        return connected[-1]

    return noted


def _close(locks: object) -> None:
    """End what a block has connected; on one page the name is a fixture's."""
    if isinstance(locks, holdfast.Locks):
        locks.close()
