"""Tests that pytest-django runs inside of the project."""

from __future__ import annotations

from typing import Any

import django
import pytest
from shop.celery_tasks import refresh  # type: ignore[import-not-found]
from shop.tasks import book  # type: ignore[import-not-found]

import holdfast
from holdfast.integrations.django import locks


def test_more_views(client: Any) -> None:
    """Of the page: async, and a class."""
    assert client.get("/running/7/").content == b"no"
    with locks.acquire("invoice:7"):
        assert client.get("/running/7/").content == b"yes"
        assert client.get("/invoice/7/").status_code == 409
    assert client.get("/invoice/7/").content == b"sent"
    assert client.post("/import/").content == b"imported"
    assert client.get("/stock/chair/").content == b"counted chair"
    with locks.acquire("stock:chair"):
        assert client.get("/stock/chair/").status_code == 409


@pytest.mark.django_db
def test_tasks() -> None:
    """Of the page: a function, and a task of Celery's on the same locks."""
    assert book("chair") == "booked chair"
    with locks.acquire("audience:7"):
        assert refresh(7)["holdfast"] == "skipped"
    assert refresh(7) == "refreshed 7"


@pytest.mark.skipif(django.VERSION < (6,), reason="Django has tasks from 6.0 on")
def test_djangos_tasks() -> None:
    """Of the page."""
    from shop.django_tasks import totals  # type: ignore[import-not-found]

    assert totals.enqueue("may").return_value == "added up may"
    with locks.acquire("totals:may"):
        assert totals.enqueue("may").return_value is None


def test_the_locks_are_those_of_the_fixture(holdfast_locks: holdfast.Locks) -> None:
    """Behind everything there is a store in memory."""
    with holdfast_locks.acquire("k"), pytest.raises(holdfast.Busy):
        locks.acquire("k", timeout=0)
    assert locks.facts.name == "memory"
