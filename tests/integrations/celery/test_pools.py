"""Pools other than prefork: threads work, greenlets are refused."""

from __future__ import annotations

import pytest

from tests.integrations.celery import app as tasks
from tests.integrations.celery.conftest import World
from tests.integrations.celery.journal import overlaps


def test_threads(world: World, item: str) -> None:
    """Threads of one process exclude each other, and share one client."""
    with world.worker(pool="threads", name=item, queue=item):
        sent = [tasks.waits.apply_async((item, 0.1), queue=item) for _ in range(6)]
        clients = [tasks.which_client.apply_async((item,), queue=item) for _ in range(4)]
        assert len({result.get(timeout=40) for result in sent}) == 6
        assert len({tuple(result.get(timeout=40)) for result in clients}) == 1
    assert overlaps(world.runs(item)) == []


@pytest.mark.parametrize("pool", ["gevent", "eventlet"])
def test_greenlets_are_refused_at_the_start(world: World, item: str, pool: str) -> None:
    """A worker with green threads does not start, and says what to use instead."""
    worker = world.worker(pool=pool, name=item, queue=item)
    try:
        assert worker.wait() != 0
        assert "use --pool=prefork, threads or solo" in worker.output()
    finally:
        worker.stop()
