"""Fixtures for the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Program


@pytest.fixture
def holdfast(tmp_path: Path) -> Iterator[Program]:
    """The `holdfast` command with a store of its own."""
    program = Program(tmp_path)
    yield program
    program.end_all()
