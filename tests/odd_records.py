"""Records that Holdfast does not write by itself, but that it may meet: of other programs, of older
releases, or changed by hand. The rules must bear them, and so must every store that runs them."""

from __future__ import annotations

from typing import Any

from holdfast.core.commands import Claim, Command, Evict, Free, Offer, Renew, Take
from holdfast.core.records import SECOND, Holder, Record, Waiter

TTL = 30 * SECOND
LONG_AGO = 1_000_000


def holder(token: str, now: int, **changes: Any) -> Holder:
    """A holder that is alive, unless told otherwise."""
    given: dict[str, Any] = {
        "fence": 7, "owner": "o", "mode": "exclusive", "ttl": TTL,
        "acquired_at": now - SECOND, "expires_at": now + TTL, "beat": "b",
    }  # fmt: skip
    return Holder(token=token, **{**given, **changes})


def waiter(token: str, now: int, **changes: Any) -> Waiter:
    """A waiter that is alive, unless told otherwise."""
    given: dict[str, Any] = {
        "owner": "o", "mode": "exclusive", "ttl": TTL,
        "since": now - SECOND, "expires_at": now + TTL, "beat": "b",
    }  # fmt: skip
    return Waiter(token=token, **{**given, **changes})


def odd_records(now: int) -> dict[str, Record]:
    """Returns the odd records by name, as of this time on the store's clock."""
    counted = {"mode": "counted"}
    shared = {"mode": "shared"}
    dead = {"expires_at": now - 5 * SECOND}

    def record(*holders: Holder, queue: tuple[Waiter, ...] = (), **more: Any) -> Record:
        return Record(**{"fence": 9, "holders": holders, "queue": queue, "updated_at": now, **more})

    def h(token: str, **changes: Any) -> Holder:
        return holder(token, now, **changes)

    def w(token: str, **changes: Any) -> Waiter:
        return waiter(token, now, **changes)

    return {
        "permits without a limit, then with 5": record(
            h("x", **counted), h("y", limit=5, **counted)
        ),
        "permits with 5, then without a limit": record(
            h("x", limit=5, **counted), h("y", **counted)
        ),
        "permits of two limits": record(h("x", limit=2, **counted), h("y", limit=3, **counted)),
        "more permits than the limit": record(*(h(t, limit=2, **counted) for t in "xyz")),
        "an exclusive holder with a limit": record(h("x", limit=3)),
        "exclusive beside shared": record(h("x"), h("y", **shared)),
        "two exclusive holders": record(h("x"), h("y")),
        "one token twice": record(h("x", **shared), h("x", fence=8, **shared)),
        "the claim's token, dead": record(h("a", **dead)),
        "the claim's token, dead, in the queue": record(h("x"), queue=(w("a", **dead),)),
        "the claim's token in both": record(h("a"), queue=(w("a"),)),
        "a holder that waits, too": record(h("x"), queue=(w("x"),)),
        "dead before living": record(h("x", **dead), h("y", **shared)),
        "all dead": record(h("x", **dead), queue=(w("y", **dead), w("z", **dead))),
        "dead waiters between living ones": record(
            h("x"), queue=(w("p", **dead), w("q", **shared), w("r", **dead), w("s", **shared))
        ),
        "a place without a limit": record(
            h("x", limit=2, **counted), queue=(w("p", **counted), w("q", limit=2, **counted))
        ),
        "a queue before a free lock": record(queue=(w("p"), w("q", **shared))),
        "readers before a writer": record(h("x", **shared), queue=(w("p", **shared), w("q"))),
        "written without a clock": record(h("x", expires_at=0), queue=(w("p", expires_at=0),)),
        "without a clock beside dead": record(h("x", expires_at=0, **shared), h("y", **dead)),
        "a fence ahead of the clock": record(fence=now + 3600 * SECOND),
        "a holder with a larger fence": record(h("x", fence=20), fence=9),
        "a fence of nothing": record(h("x", fence=0), fence=0, updated_at=0),
        "freed and held again": record(h("a"), freed="a"),
        "freed and in the queue": record(h("x"), queue=(w("a"),), freed="a"),
        "offered": record(h("ticket", offered=True)),
        "offered and dead": record(h("ticket", offered=True, **dead)),
        "offered twice": record(h("ticket", offered=True), h("ticket2", offered=True)),
        "offered, and the taker holds": record(h("ticket", offered=True), h("a", **shared)),
        "a ticket that was not offered": record(h("ticket")),
        "from long ago": record(h("x", acquired_at=1, expires_at=LONG_AGO), fence=1, updated_at=1),
        "notes with brackets": record(h("x", note={"],": '"queue":[', "n": ["\n", {}]})),
        "owners with quotes": record(h("x", owner='"},{"token":"a"'), queue=(w("p", owner="\\"),)),
        "texts of other scripts": record(h("x", owner="ówner 🔒"), queue=(w("p", owner="名前"),)),
    }


def commands() -> dict[str, Command]:
    """Returns what is asked of each of them, by name."""
    return {
        "claim": Claim("a", "me", "exclusive", TTL),
        "claim and queue": Claim("a", "me", "exclusive", TTL, None, {"n": 1}, True, TTL),
        "claim shared": Claim("a", "me", "shared", TTL),
        "claim shared and queue": Claim("a", "me", "shared", TTL, None, {}, True, TTL),
        "claim one of 2": Claim("a", "me", "counted", TTL, 2),
        "claim one of 3": Claim("a", "me", "counted", TTL, 3),
        "claim one of 3 and queue": Claim("a", "me", "counted", TTL, 3, {}, True, TTL),
        "renew a": Renew("a"),
        "renew x": Renew("x"),
        "free a": Free("a"),
        "free x": Free("x"),
        "free p": Free("p"),
        "offer x": Offer("x", "ticket", TTL),
        "offer a": Offer("a", "ticket", TTL),
        "take": Take("ticket", "a", "me", TTL),
        "take with a note": Take("ticket", "a", "me", TTL, {"n": 2}),
        "evict 7": Evict((7,)),
        "evict nobody": Evict((4711,)),
    }
