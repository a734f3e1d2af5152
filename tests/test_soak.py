"""The soak finds what it looks for, and finds nothing on SQLite and on a Redis in trouble."""

from __future__ import annotations

import pytest

import tests.soak
from tests.engines.base import require
from tests.engines.redis import RedisServer
from tests.soak import Held, soak, violations
from tests.trouble import troubled


def held(fence: int, since: float, until: float, mode: str = "exclusive", key: str = "k") -> Held:
    """Somebody held a lock."""
    return Held(key, mode, fence, since, until, process=fence)


@pytest.mark.parametrize(
    ("diary", "wrong"),
    [
        ([held(1, 0, 1), held(2, 1, 2), held(3, 2.5, 3)], 0),
        ([held(1, 0, 1), held(2, 0.5, 2)], 1),
        ([held(2, 0.5, 2), held(1, 0, 1, "shared")], 1),
        ([held(1, 0, 9), held(2, 1, 2, key="other")], 0),
        ([held(1, 0, 9, "shared"), held(2, 1, 2, "shared"), held(3, 3, 4, "shared")], 0),
        ([held(1, 0, 9, "shared"), held(2, 1, 2, "shared"), held(3, 3, 4)], 1),
        ([held(2, 0, 1), held(1, 1, 2)], 1),
        ([held(1, 0, 1), held(1, 2, 3)], 1),
    ],
)
def test_violations(diary: list[Held], wrong: int) -> None:
    """Two at a time unless both share, and fences that do not grow."""
    assert len(violations(diary)) == wrong


def test_a_short_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Killed, stopped and forked processes on one file."""
    path = tmp_path_factory.mktemp("soak") / "locks.db"
    locks, wrong = soak(f"sqlite://{path}", processes=4, seconds=6)
    assert wrong == []
    assert locks > 10


@pytest.mark.timeout(120)
def test_a_server_in_trouble() -> None:
    """One that crashes, freezes and is cut off."""
    require(RedisServer)
    with troubled("redis") as (url, trouble):
        locks, wrong = soak(url, processes=4, seconds=8, trouble=trouble)
    assert wrong == []
    assert locks > 10


def test_who_is_shut_out_and_who_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trouble that does not end, and processes that cannot even begin, are found."""
    require(RedisServer)
    monkeypatch.setattr(tests.soak, "PEACE_S", 2.0)
    server = RedisServer()
    with server:
        _, wrong = soak(server.url, processes=2, seconds=4, trouble=server.kill)
    assert sum("got no lock any more" in one for one in wrong) == 2
    _, wrong = soak("nonsense:", processes=2, seconds=4)
    assert any("died by itself" in one for one in wrong)
