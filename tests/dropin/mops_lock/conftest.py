"""Fixtures for the leases of mops."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dropin.mops_lock.lab import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder for one lease."""
    return Folder(tmp_path)
