"""Records and keys that the cases about stores work with."""

from __future__ import annotations

from msgspec import UNSET

from holdfast.core.records import SECOND, Happening, Holder, Record, Waiter

EXACT_KEYS = (
    "a", "A", "a ", " a", "a\t", "a\n", "é", "e\u0301", "ß", "ss", "\u0131", "i",
    "%", "a%b", "_", "a_b",
    "a/b", "a//b", "../a", ".", "..", "a:b", "{a}", "{b}", "a*", "a?", "[a]", "'", '"', "\\", "\\a",
    "a;b", "名前", "🔒", "\u200b", "a\u200b", "NULL", "0", "00", "1e3",
)  # fmt: skip


def record(fence: int, beat: str = "b", *, history: bool = False) -> Record:
    """A record with everything in it."""
    holder = Holder("token", fence, "ówner", "counted", 5 * SECOND, 1, 2, beat, 3, {"a": [1, "é"]})
    waiter = Waiter("other", "w", "shared", SECOND, 4, 5, beat)
    past = (Happening("evicted", 5, "ówner", 3, 2, "ops", "stück"),) if history else UNSET
    return Record(fence, (holder,), (waiter,), updated_at=6, freed="gone", history=past)
