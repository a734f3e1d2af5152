"""Runs the jobs in pools of processes, started by fork, spawn and forkserver."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tests.prefork import jobs


def on_a_loop(number: int) -> Any:
    """Run the asyncio job in a worker."""
    return asyncio.run(jobs.guarded_on_a_loop(number))


def main(method: str) -> None:
    """Run each job in two kinds of pools."""
    context = multiprocessing.get_context(method)
    calls = (jobs.guarded, jobs.guarded_lazily, on_a_loop)
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        said = [one for call in calls for one in executor.map(call, range(4), timeout=100)]
    with context.Pool(2) as pool:
        said += [one for call in calls for one in pool.map_async(call, range(4)).get(100)]
    for process, owner in said:
        assert process != os.getpid()
        assert owner.endswith(f":{process}"), (owner, process)
    assert jobs.guarded(1)[0] == os.getpid()
    print(len(said), "jobs")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
