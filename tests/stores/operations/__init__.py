"""What is called in the walk: every operation of a store and of a client."""

from tests.stores.operations.base import Operation, beats_of, unlike, word_for
from tests.stores.operations.of_clients import (
    Acquire,
    AcquireAll,
    ColdTryAcquire,
    Eviction,
    HandOver,
    Join,
    ListAll,
    Purge,
    Release,
    Renewal,
    Show,
    Take,
    TryAcquire,
)
from tests.stores.operations.of_stores import (
    AmendNew,
    AmendOne,
    ApplyMany,
    ApplyOne,
    ColdAmend,
    ColdApply,
    ColdLoad,
    ColdUpdate,
    Create,
    Drop,
    LoadOne,
    ScanAll,
    SwapMany,
    Update,
)

__all__ = ["OPERATIONS", "Operation", "beats_of", "unlike", "word_for"]

OPERATIONS: tuple[type[Operation], ...] = (
    LoadOne, ColdLoad, ScanAll, Show, ListAll,
    Create, Update, ColdUpdate, Drop, AmendOne, AmendNew, ColdAmend,
    ApplyOne, ColdApply, SwapMany, ApplyMany,
    TryAcquire, ColdTryAcquire, Acquire, AcquireAll,
    Renewal, Release, HandOver, Take, Join, Eviction, Purge,
)  # fmt: skip
