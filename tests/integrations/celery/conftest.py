"""A broker, a worker and the lock store that they use; the store is a parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import holdfast
from tests.engines.base import require
from tests.engines.redis import RedisServer
from tests.integrations.celery import app as tasks
from tests.integrations.celery.journal import Journal
from tests.integrations.celery.worker import Worker

# Where the locks are: any store that several processes of one machine can share.
LOCK_STORES: dict[str, Callable[[Path, RedisServer], str]] = {
    "sqlite": lambda folder, broker: f"sqlite://{folder}/locks.db",
    "redis": lambda folder, broker: f"redis://127.0.0.1:{broker.port}/3",
}


class World:
    """What a test sees: it sends tasks, reads their journal and looks at the locks."""

    def __init__(self, folder: Path, broker: RedisServer, url: str) -> None:
        self.folder = folder
        self.journal = Journal(folder / "journal")
        self.locks = holdfast.connect(url, owner="the test")
        self.environment = {
            tasks.BROKER_VARIABLE: broker.url,
            tasks.LOCKS_VARIABLE: url,
            tasks.JOURNAL_VARIABLE: str(folder / "journal"),
        }

    def worker(self, more: dict[str, str] | None = None, **options: Any) -> Worker:
        """Another worker than the shared one."""
        return Worker(self.folder, {**self.environment, **(more or {})}, **options)

    def free(self, item: str) -> bool:
        """Whether nobody holds this item's lock."""
        return self.locks.show(f"item:{item}").free

    def runs(self, item: str) -> list[dict[str, Any]]:
        """What happened under this item's lock."""
        return self.journal.entries(key=f"item:{item}")


@pytest.fixture(scope="session")
def broker() -> Iterator[RedisServer]:
    """One Redis for all tests; the app of this process talks to it too."""
    require(RedisServer)
    server = RedisServer()
    server.start()
    tasks.app.conf.update(broker_url=server.url, result_backend=server.url)
    try:
        yield server
    finally:
        tasks.app.close()
        server.stop()


@pytest.fixture(scope="session", params=LOCK_STORES)
def world(
    request: pytest.FixtureRequest, broker: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A folder, a journal and a lock store."""
    folder = tmp_path_factory.mktemp("celery")
    world = World(folder, broker, LOCK_STORES[request.param](folder, broker))
    yield world
    world.locks.close()


@pytest.fixture(scope="session")
def worker(world: World) -> Iterator[Worker]:
    """The shared prefork worker."""
    with world.worker() as running:
        yield running


@pytest.fixture
def item() -> str:
    """A lock that no other test uses."""
    return uuid4().hex[:12]
