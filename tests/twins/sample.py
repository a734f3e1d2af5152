# Made from sample_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Use it in a `with` block."""

from __future__ import annotations

import time
from collections.abc import Iterator


class Sample:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.asked = 100

    def ask(self, what: str) -> str:
        """Wait a little, as an answer does."""
        time.sleep(0)
        self.asked += 1
        return f"{{{what}}} {self.asked}"

    def each(self, *whats: str) -> Iterator[str]:
        """One answer after the other."""
        for what in whats:
            yield self.ask(what)

    def __enter__(self) -> Sample:
        return self

    def __exit__(self, *exc: object) -> None:
        name = "a thread"
        self.last = name


def all_of(*whats: str) -> list[str]:
    """Their answers."""
    with Sample() as sample:
        return [answer.upper() for answer in sample.each(*whats)]
