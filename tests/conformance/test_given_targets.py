"""The variable that points the conformance cases at servers that run already."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.conformance import run_case
from tests.conformance.given_targets import VARIABLE, given_targets, target_at
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisServer
from tests.engines.shared import shared


def test_no_variable_no_targets() -> None:
    """Without the variable, or with an empty one, nothing is added."""
    assert given_targets({}) == given_targets({VARIABLE: " "}) == {}


def test_one_target_for_each_url() -> None:
    """Two servers of one kind are two targets, and each name begins with what `-k` asks for."""
    targets = given_targets({VARIABLE: "redis://one redis://two"})
    assert list(targets) == ["given 1: redis", "given 2: redis"]


def test_a_url_that_no_target_can_be_made_of() -> None:
    """What cannot be tested so is said, and not passed over."""
    with pytest.raises(ValueError, match="not sqlite"):
        target_at("sqlite:///tmp/x.db")


@pytest.mark.parametrize("kind", ["redis", "valkey", "postgres", "mariadb"])
def test_a_given_server_is_tested(kind: str, tmp_path: Path) -> None:
    """A case that corrupts a record runs on a server that was named by its URL."""
    url = {
        "redis": lambda: shared(RedisServer).url,
        "valkey": lambda: shared(RedisServer).url.replace("redis", "valkey", 1),
        "postgres": lambda: shared(PostgreSQL).url("postgres"),
        "mariadb": lambda: shared(MariaDB).url("mariadb"),
    }[kind]()
    (make,) = given_targets({VARIABLE: url}).values()
    run_case("corrupt_record_is_a_fault", make(tmp_path), "sync")
