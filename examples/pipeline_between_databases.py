"""A pipeline that reads one database and writes another, under locks on both.

    HOLDFAST_URL=postgresql://user@host/db python examples/pipeline_between_databases.py

`acquire_all` gets both locks or none, and everybody gets them in the same order, so that a
pipeline from A to B and one from B to A never wait for each other in a circle. Reading is
shared: many pipelines may read the warehouse at once, but nobody while it is being written.
"""

from __future__ import annotations

import time

import holdfast

SOURCE, TARGET = "db://warehouse", "db://reports"


def copy(fence: int) -> None:
    """The work. The target keeps the largest fence it has seen, and refuses smaller ones."""
    time.sleep(0.1)
    print(f"wrote {TARGET} with fence {fence}")


def main() -> None:
    """Run the pipeline once."""
    wants = [holdfast.Want(SOURCE, mode="shared"), holdfast.Want(TARGET)]
    with holdfast.connect(owner="nightly reports") as locks:
        with locks.acquire_all(wants, ttl=60, timeout=600) as leases:
            copy(leases[TARGET].fence)
        for info in locks.list("db://"):
            print(f"still held: {info.key}")


if __name__ == "__main__":
    main()
