"""The ingestion pipeline is run as its README says; two at once, and one is skipped."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import holdfast
from examples.ingest_pipeline import warehouse
from examples.ingest_pipeline.__main__ import SAMPLE
from examples.ingest_pipeline.config import AppConfig
from examples.ingest_pipeline.extract import extract
from examples.ingest_pipeline.pipeline import run_pipeline
from holdfast.fencing import Fence
from tests.dropin.dynamodb_lock.lab import Lab
from tests.engines.dynamodb import DynamoDBLocal
from tests.engines.shared import shared
from tests.helpers import unique, until

ROOT = Path(__file__).parents[2]
MONTHS = [(2024, 9), (2024, 10), (2024, 11)]


def command(folder: Path, *arguments: str) -> list[str]:
    """The one command."""
    program = [sys.executable, "-m", "examples.ingest_pipeline", "--folder", str(folder)]
    return [*program, *arguments]


def environment() -> dict[str, str]:
    """Without a store of the developer's."""
    rest = {name: value for name, value in os.environ.items() if name != "HOLDFAST_URL"}
    credentials = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return {**rest, **credentials, "AWS_DEFAULT_REGION": "us-east-1"}


def run(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(folder, *arguments), cwd=ROOT, env={**environment(), **more},
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip


def test_one_command(tmp_path: Path) -> None:
    """On the embedded store; the fences grow from run to run."""
    first, second = run(tmp_path), run(tmp_path)
    for ran in (first, second):
        assert ran.returncode == 0, ran.stderr
        assert "3 months loaded, 0 left" in ran.stdout
    assert "Acquired lock pipeline:bcra_series (owner: run-" in first.stderr
    assert "Acquired lock consolidate:bcra_series:2024:9 (owner: run-" in first.stderr
    before, after = (
        [int(line.split("fence ")[1]) for line in ran.stdout.splitlines() if "fence " in line]
        for ran in (first, second)
    )
    assert len(before) == 3
    assert all(old < new for old, new in zip(before, after, strict=True))


@contextmanager
def protection(kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The arguments that choose a lock."""
    if kind == "embedded":
        yield []
        return
    endpoint = shared(DynamoDBLocal).endpoint
    if kind == "dynamodb":
        yield ["--setup", "--locks", f"dynamodb://locks-{unique()}?endpoint_url={endpoint}"]
        return
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
    with closing(Lab(endpoint)) as lab:
        yield ["--table", lab.table]


@pytest.mark.parametrize("kind", ["embedded", "dynamodb", "drop-in"])
def test_two_at_once(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One runs, the other is skipped; the lock is free afterwards."""
    source = tmp_path / "source"
    os.mkfifo(source)  # the first one waits for what comes out of it
    log = tmp_path / "log"
    with protection(kind, monkeypatch) as arguments:
        with log.open("w") as output:
            first = subprocess.Popen(
                command(tmp_path, *arguments, "--source", str(source)),
                cwd=ROOT, env=environment(), stdout=output, stderr=output,
            )  # fmt: skip
        try:
            until(lambda: "Acquired lock" in log.read_text(), 60)
            second = run(tmp_path, *arguments)
            assert second.returncode == 0, second.stderr
            skipped = "WARNING Pipeline already running for bcra_series, skipping execution"
            assert skipped in second.stderr
            assert second.stdout == ""
            source.write_text(SAMPLE.read_text())
            assert first.wait(60) == 0, log.read_text()
        finally:
            first.kill()
            first.wait()
        assert "3 months loaded" in log.read_text()
        third = run(tmp_path, *arguments)
        assert "3 months loaded" in third.stdout, third.stderr


@pytest.fixture
def config(tmp_path: Path) -> AppConfig:
    """On the embedded store."""
    return AppConfig(lock_url=f"sqlite:{tmp_path}/locks.db", folder=tmp_path)


def test_it_is_freed_when_it_fails(config: AppConfig, tmp_path: Path) -> None:
    """In `finally`: the next run is not skipped."""
    bad = tmp_path / "bad.csv"
    bad.write_text("2024-09-02,1.5\nyesterday,2\n")
    with pytest.raises(ValueError, match=r"bad\.csv, line 2"):
        run_pipeline(config, "orders", bad)
    assert run_pipeline(config, "orders", SAMPLE).loaded == MONTHS


def test_without_a_table_it_runs_unprotected(tmp_path: Path) -> None:
    """And makes no lock."""
    config = AppConfig(dynamodb_lock_table=None, folder=tmp_path)
    assert run_pipeline(config, "orders", SAMPLE).loaded == MONTHS
    assert not (tmp_path / "locks.db").exists()
    assert [fence for *_, fence in warehouse.read(tmp_path)] == [None] * 3


def test_a_month_that_is_taken_is_left(config: AppConfig, caplog: pytest.LogCaptureFixture) -> None:
    """For the next run; the others are loaded."""
    caplog.set_level(logging.WARNING)
    with holdfast.connect(config.lock_url) as locks, locks.acquire("consolidate:orders:2024:10"):
        ran = run_pipeline(config, "orders", SAMPLE)
    assert (ran.loaded, ran.left) == ([MONTHS[0], MONTHS[2]], [MONTHS[1]])
    assert "consolidate:orders:2024:10" in caplog.text
    assert run_pipeline(config, "orders", SAMPLE).left == []


def test_months_grow(config: AppConfig, tmp_path: Path) -> None:
    """What is known stays, and what is told anew wins."""
    more = tmp_path / "more.csv"
    more.write_text("2024-09-02,0\n2024-09-01,0\n")
    run_pipeline(config, "orders", SAMPLE)
    run_pipeline(config, "orders", more)
    days = [days for _, _, _, days, *_ in warehouse.read(tmp_path)]
    assert days == [22, 23, 21]


def test_who_comes_too_late_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the warehouse, by its fence; also where there was no row of that month yet."""
    rows, key = extract(SAMPLE)[:2], "consolidate:orders:2024:9"

    def load(file: str, fence: int, month: int = 9) -> bool:
        return warehouse.load(tmp_path, "orders", (2024, month), file, rows, Fence(key, fence))

    assert load("new.csv", 7)
    assert not load("late.csv", 6)
    assert not load("late.csv", 6, month=10)
    assert warehouse.current_file(tmp_path, "orders", (2024, 9)) == "new.csv"
    assert warehouse.current_file(tmp_path, "orders", (2024, 10)) is None
    assert "fence 7, and this is 6" in caplog.text
    assert load("newer.csv", 8)
