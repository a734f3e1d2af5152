"""The two faces of `holdfast.fencing`, what it imports, and what each gate costs in requests."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fencing import SUBJECTS, main, measure
from holdfast import fencing
from holdfast.fencing import aio
from tests.helpers import memory_locks

MODULES = ("sql", "dynamodb", "redis", "blob", "files")
NOT_AWAITED = {"ddl", "entry", "unless_stale", "pipeline"}


def parameters(call: Any) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(call).parameters.values()]


@pytest.mark.parametrize("name", MODULES)
def test_both_faces_have_the_same_names_and_arguments(name: str) -> None:
    """And whatever asks the target is awaited in one of them."""
    blocking, awaited = getattr(fencing, name), getattr(aio, name)
    assert blocking.__all__ == awaited.__all__
    for each in blocking.__all__:
        mine, theirs = getattr(blocking, each), getattr(awaited, each)
        assert mine.__doc__
        if not inspect.isfunction(mine):
            continue
        assert parameters(mine) == parameters(theirs), each
        assert inspect.iscoroutinefunction(theirs) == (each not in NOT_AWAITED), each


def test_what_is_shown() -> None:
    """Everything can be found, and a wrong name is an error."""
    assert set(fencing.__all__) <= set(dir(fencing))
    assert aio.http is fencing.http
    for module in (fencing, aio):
        with pytest.raises(AttributeError):
            _ = module.etcd


def test_no_driver_is_imported_before_it_is_needed() -> None:
    """A service that only has Redis needs no SQLAlchemy."""
    heavy = "{'sqlalchemy', 'redis', 'boto3', 'obstore', 'psycopg', 'asyncio', 'django'}"
    for code, allowed in (
        ("from holdfast import fencing; fencing.Fence('k', 1)", "set()"),
        ("from holdfast import fencing; fencing.sql.admit", "set()"),
        ("from holdfast import fencing; fencing.dynamodb.put", "set()"),
        ("from holdfast import fencing; fencing.redis.pipeline", "{'redis', 'asyncio'}"),
        ("from holdfast import fencing; fencing.files.write", "set()"),
    ):
        program = f"import sys; {code}; print(sorted({heavy} & set(sys.modules) - {allowed}))"
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert ran.stdout == "[]\n", (code, ran.stdout, ran.stderr)


MORE_REQUESTS = {
    "postgresql": 1, "mysql": 1, "sqlite": 1, "redis": 0, "dynamodb": 0,
    "dynamodb-transaction": 0, "azure": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", MORE_REQUESTS)
def test_what_a_gate_costs(name: str, tmp_path: Path) -> None:
    """At most one more request, none where the condition can ride on the write."""
    with memory_locks() as locks, locks.acquire("k", ttl=600) as lease:
        with SUBJECTS[name](lease, tmp_path) as subject:
            plain, guarded = measure(subject, rounds=1, writes=3)
    assert plain.requests is not None
    assert guarded.requests is not None
    assert guarded.requests - plain.requests == MORE_REQUESTS[name]


def test_the_benchmark_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each target."""
    main(["--rounds", "1", "--writes", "1", "sqlite", "file"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| sqlite", "| file"]
