"""A process that takes locks as it is told, with whichever Holdfast it finds.

It reads one JSON list per line, [call, arguments…], and answers each with a line. It imports only
`holdfast`, and uses only what there was at 0.1.0.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import holdfast

REFUSALS = (holdfast.Refused, holdfast.LeaseLost)


class Worker:
    """One client, and the leases that it was told to take, by key."""

    def __init__(self, url: str) -> None:
        self._locks = holdfast.connect(url)
        self._leases: dict[str, holdfast.Lease] = {}

    def acquire(self, key: str, options: dict[str, Any]) -> int:
        """Wait for a lock. Returns its fence."""
        return self._keep(self._locks.acquire(key, **options))

    def take(self, ticket: str) -> int:
        """Become the holder."""
        return self._keep(self._locks.take(ticket))

    def join(self, ticket: str) -> int:
        """Keep the lease alive, too."""
        return self._keep(self._locks.join(ticket))

    def _keep(self, lease: holdfast.Lease) -> int:
        self._leases[lease.key] = lease
        return lease.fence

    def hand_over(self, key: str) -> str:
        """Returns the ticket for it."""
        return self._leases[key].hand_over()

    def share(self, key: str) -> str:
        """Returns the ticket for it."""
        return self._leases[key].share()

    def release(self, key: str) -> None:
        """Give it back."""
        self._leases.pop(key).release()

    def renew(self, key: str) -> None:
        """Renew it now."""
        self._leases[key].renew()

    def evict(self, key: str) -> int:
        """Returns how many were evicted."""
        return len(self._locks.evict(key))

    def show(self, key: str) -> list[Any]:
        """Returns the fence, the holders, the waiters and the fault."""
        seen = self._locks.show(key)
        holders = [holder.owner for holder in seen.holders]
        return [seen.fence, holders, [waiter.owner for waiter in seen.waiters], seen.fault]

    def list(self, prefix: str) -> list[str]:
        """Returns the keys that are held."""
        return sorted(seen.key for seen in self._locks.list(prefix))

    def count(self, key: str, diary: str, times: int) -> None:
        """Write one's fence into a file under the lock, so many times."""
        for _ in range(times):
            with self._locks.acquire(key, timeout=120) as lease:
                path = Path(diary)
                path.write_text(f"{path.read_text()}{lease.fence}\n")


def main(url: str) -> None:
    """Answer until the input ends."""
    logging.getLogger("holdfast").setLevel("ERROR")  # 0.1.0 tells of every wait
    worker = Worker(url)
    answer: Any = [holdfast.__version__, holdfast.__file__]
    while True:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        call, *arguments = json.loads(line)
        try:
            answer = getattr(worker, call)(*arguments)
        except REFUSALS:
            answer = "refused"


if __name__ == "__main__":
    main(sys.argv[1])
