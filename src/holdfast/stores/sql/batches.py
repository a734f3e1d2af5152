"""Many swaps in one statement: the renewals of a client that keeps thousands of leases.

1. Only updates go together, of records of a usual size, each key once, and with nobody to be
   woken. That is what renewals are. All else goes on its own, after them.
2. The statement is a transaction: if no answer comes, all of its updates are unknown. Each that
   is known not to be done comes with what is there instead.
3. No batch waits long because of one row that somebody keeps locked: it is left out, or else all
   go on their own. Two batches never wait for each other in a circle: rows are locked in the
   order of their keys, or not waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.commands import NOBODY
from holdfast.core.effects import Swap
from holdfast.errors import HoldfastError
from holdfast.stores.base import Outcome
from holdfast.stores.sql.errors import Locked
from holdfast.stores.sql.protocol import Dialect, Queries, Update

# Longer records go alone: a server limits how long a statement may be.
LONGEST_RECORD = 16_384


def swap_many_queries(dialect: Dialect, swaps: Sequence[Swap]) -> Queries[list[Any]]:
    """Returns an outcome for each, in their order."""
    updates = _updates_in(dialect, swaps)
    outcomes: dict[int, Outcome | Exception] = {}
    if len(updates) > 1:
        try:
            found = yield from dialect.update_many_queries(list(updates.values()))
            outcomes = dict(zip(updates, found, strict=True))
        except Locked:
            pass  # which one? The others must not wait for it
        except HoldfastError as trouble:
            outcomes = dict.fromkeys(updates, trouble)
    for place, swap in enumerate(swaps):
        if place not in outcomes:
            outcomes[place] = yield from _alone_queries(dialect, swap)
    return [outcomes[place] for place in range(len(swaps))]


def _updates_in(dialect: Dialect, swaps: Sequence[Swap]) -> dict[int, Update]:
    """Returns those that can go together, by their places, in the order of their keys."""
    found: dict[str, tuple[int, Update]] = {}
    for place, swap in enumerate(swaps):
        key, version, record = swap.key, swap.version, swap.record
        if version is None or record is None or swap.wake != NOBODY or key in found:
            continue
        columns = dialect.columns(record, NOBODY)
        if len(columns["record"]) <= LONGEST_RECORD:
            found[key] = place, Update(key, version, record, columns)
    return dict(found[key] for key in sorted(found))


def _alone_queries(dialect: Dialect, swap: Swap) -> Queries[Outcome | Exception]:
    try:
        return (yield from dialect.swap_queries(swap))
    except HoldfastError as trouble:
        return trouble
