"""The how-tos work as pasted: files are written, commands run, and their output is compared."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.engines.redis import RedisServer
from tests.engines.shared import shared

PAGES = sorted((Path(__file__).parent.parent / "docs/howto").glob("*.md"))
BY_HAND = {"scheduler"}  # two terminals, and somebody who stops one of them
LIMIT_S = 120


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is, its text."""

    language: str
    title: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found = re.findall(
        r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', page.read_text(), re.DOTALL | re.MULTILINE
    )
    return [Block(*parts) for parts in found]


def surroundings(home: Path) -> dict[str, str]:
    """The environment of somebody who has just installed Holdfast. Other libraries that our tests
    need bring plugins for pytest, of which one warns on Python 3.13."""
    return {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTEST_ADDOPTS": "-p no:pytest-mops -p no:valkey -p no:django",
    }


def write_files(page: Path, folder: Path) -> None:
    """The page's files, in the folder. Its Redis is the one of the tests."""
    for block in blocks_of(page):
        if block.title.endswith(".py"):
            text = block.text
            if "localhost:6379" in text:
                text = text.replace("localhost:6379", f"127.0.0.1:{shared(RedisServer).port}")
            (folder / block.title).write_text(text)


def pairs_to_run(page: Path) -> list[tuple[str, str]]:
    """Commands that are followed by what they print."""
    blocks = blocks_of(page)
    return [
        (block.text, after.text)
        for block, after in pairwise(blocks)
        if block.language == "sh" and after.language == "text"
    ]


def run(command: str, folder: Path) -> list[str]:
    """The lines that a command prints, and what it starts in the background, too."""
    output = folder / ".output"
    with output.open("w") as file:
        shell = subprocess.Popen(
            ["sh", "-eu", "-c", command], cwd=folder, env=surroundings(folder),
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        code = shell.wait(timeout=LIMIT_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait(timeout=LIMIT_S)
    lines = output.read_text().splitlines()
    assert code == 0, lines
    return lines


def as_pattern(line: str) -> str:
    """A line in which … stands for anything."""
    return ".*".join(re.escape(part) for part in line.split("…"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_the_same_parts(page: Path) -> None:
    """Whoever has seen one how-to finds everything in the others: paste this, try it."""
    text = page.read_text()
    assert "\n## Paste this\n" in text
    assert "\n## Try it\n" in text
    assert "pip install" in text
    assert pairs_to_run(page) != []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_is_seen_whole(page: Path) -> None:
    """At 1280 pixels a line of code has room for 80 characters."""
    code = [block.text for block in blocks_of(page) if block.language in ("python", "diff")]
    assert [line for text in code for line in text.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem not in BY_HAND], ids=lambda page: page.stem
)
def test_it_works_as_pasted(page: Path, tmp_path: Path) -> None:
    """Every command prints just the lines that the page shows, if not always in that order."""
    write_files(page, tmp_path)
    for command, shown in pairs_to_run(page):
        printed, expected = run(command, tmp_path), shown.splitlines()
        for line in expected:
            match = next((each for each in printed if re.fullmatch(as_pattern(line), each)), None)
            assert match is not None, printed
            printed.remove(match)
        assert [line for line in printed if not re.fullmatch(r"\.*\s*(\[100%\])?", line)] == []


def kill_all(processes: list[subprocess.Popen[bytes]]) -> None:
    """End what a test has started."""
    for process in processes:
        process.kill()


def test_the_crontab_works(tmp_path: Path) -> None:
    """The line of the crontab runs its command, with a command of ours in it."""
    (page,) = [page for page in PAGES if page.stem == "cron"]
    (crontab,) = [block.text for block in blocks_of(page) if block.title == "crontab"]
    command = crontab.split(None, 5)[5].replace("/opt/app/refresh.sh", "echo refreshed")
    assert run(command, tmp_path) == ["refreshed"]


def test_the_second_scheduler_follows_the_first(tmp_path: Path) -> None:
    """Of two, one leads; when it is stopped, the other one does."""
    (page,) = [page for page in PAGES if page.stem == "scheduler"]
    write_files(page, tmp_path)
    ((_, shown),) = pairs_to_run(page)
    reading, writing = os.pipe()
    started = [
        subprocess.Popen(
            [sys.executable, "scheduler.py"], cwd=tmp_path, env=surroundings(tmp_path),
            stdout=writing,
        )
        for _ in range(2)
    ]  # fmt: skip
    os.close(writing)
    limit = threading.Timer(LIMIT_S, kill_all, [started])
    limit.start()
    try:
        with os.fdopen(reading) as printed:
            first = printed.readline()
            assert re.fullmatch(as_pattern(shown), first)
            leader = int(first.split(" ")[0].rsplit(":", 1)[1])
            next(each for each in started if each.pid == leader).terminate()
            second = printed.readline()
            assert re.fullmatch(as_pattern(shown), second)
            assert second != first
    finally:
        limit.cancel()
        kill_all(started)
        for each in started:
            each.wait(timeout=LIMIT_S)
