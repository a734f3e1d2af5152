"""Many processes on one resource."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from tests.stores.sql.servers import Server

PROCESSES, TIMES = 8, 100


@pytest.mark.timeout(240)
def test_readers_and_writers(server: Server, tmp_path: Path) -> None:
    """8 processes, 100 times each: no overlap, no lost update, no leaked row."""
    table = server.new_table()
    url = server.url(query=f"table={table}")
    (tmp_path / "count").write_text("0")
    module = "tests.stores.sql.crowd"
    started = time.monotonic()
    crowd = [
        subprocess.Popen(
            [sys.executable, "-m", module, url, "db://shared", str(tmp_path), str(n), str(TIMES)],
            cwd=Path(__file__).parents[3],
        )
        for n in range(PROCESSES)
    ]
    try:
        assert [member.wait(200) for member in crowd] == [0] * PROCESSES
    finally:
        for member in crowd:
            member.kill()
    sys.stderr.write(f"{server.kind}: {time.monotonic() - started:.1f} s\n")
    writes = sum((turn + n) % 3 == 0 for n in range(PROCESSES) for turn in range(TIMES))
    assert (tmp_path / "count").read_text() == str(writes)
    with holdfast.connect(url) as locks:
        shown = locks.show("db://shared")
        assert shown.free
        assert shown.waiters == ()
    assert server.run(f"SELECT mode, owners FROM {table}") == [("free", "")]
