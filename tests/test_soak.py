"""The soak finds what it looks for, and finds nothing on SQLite."""

from __future__ import annotations

import pytest

from tests.soak import Held, soak, violations


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
