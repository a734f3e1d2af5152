"""What `manage.py check` says of the locks."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import Tags, run_checks

from holdfast.integrations.django import checks
from tests.engines.base import free_port
from tests.engines.redis import RedisServer
from tests.engines.shared import shared
from tests.integrations.django.test_places import DJANGOS, database


def told(*, deploy: bool = False, databases: Any = None) -> list[str]:
    """The ids of what is told."""
    tags = [checks.TAG, *([Tags.database] if databases else [])]
    said = run_checks(tags=tags, include_deployment_checks=deploy, databases=databases)
    return [one.id for one in said]


def test_all_is_well(change: Any) -> None:
    """With a store that all reach."""
    change(HOLDFAST={"url": shared(RedisServer).url})
    assert told(deploy=True) == []


def test_wrong_settings(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One error says what to do, and the other checks are silent."""
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    change(HOLDFAST={})
    assert told(deploy=True, databases=["default"]) == ["holdfast.E001"]
    (error,) = checks.check_settings()
    assert 'HOLDFAST = {"database": "default"}' in error.msg
    change(HOLDFAST={"url": "nosuch://x"})
    assert told() == ["holdfast.E001"]


def test_a_missing_driver(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which extra to install."""
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    change(HOLDFAST={"url": "postgresql://h/db"})
    (error,) = checks.check_settings()
    assert "pip install 'holdfast[postgres]'" in error.msg


def test_a_store_that_cannot_be_reached(change: Any) -> None:
    """Only a check that may ask the store tells it."""
    change(HOLDFAST={"url": f"redis://127.0.0.1:{free_port()}", "request_timeout": 1})
    assert told() == []
    assert told(deploy=True) == ["holdfast.W001"]


def test_a_database_that_cannot_be_reached(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked if it is named."""
    alias = database(
        monkeypatch, "postgresql", NAME="x", USER="x", HOST="127.0.0.1", PORT=free_port()
    )
    change(HOLDFAST={"database": alias, "request_timeout": 1})
    assert checks.check_database(databases=["another"]) == []
    assert [one.id for one in checks.check_database(databases=[alias])] == ["holdfast.W001"]
    assert checks.check_deployment() == []


def test_the_database_of_a_cache(change: Any) -> None:
    """cache.clear() would remove the locks; `db` says that they are elsewhere."""
    change(CACHES={"default": {"BACKEND": DJANGOS, "LOCATION": shared(RedisServer).url}})
    change(HOLDFAST={"cache": "default"})
    assert told() == ["holdfast.W002"]
    change(HOLDFAST={"cache": "default", "db": 5})
    assert told(deploy=True) == []


def test_locks_that_nobody_else_sees(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning before a deployment; none if nobody else sees the database, either, as in tests."""
    assert told() == []
    assert told(deploy=True) == ["holdfast.W003"]
    alias = database(monkeypatch, "sqlite3", NAME=":memory:")
    change(HOLDFAST={"database": alias})
    assert checks.check_database(databases=[alias]) == []


def test_no_file_is_made(change: Any, tmp_path: Any) -> None:
    """Checks run when an image is built, by another user than the one of the service."""
    change(HOLDFAST={"url": f"sqlite://{tmp_path}/locks.db"})
    assert told() == []
    assert list(tmp_path.iterdir()) == []
