"""Bad input and trouble: an error of its own class that says what to do, and nothing lost."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import (
    AcquireTimeout,
    BadKey,
    BadOption,
    BadTicket,
    BadURL,
    Busy,
    ClientClosed,
    HoldfastError,
    LeaseLost,
    Locks,
    Misconfigured,
    TicketRefused,
    UsageError,
    Want,
    aio,
)
from holdfast.core.tickets import seal, unseal
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SQLiteStore
from tests.conformance.targets import TARGETS
from tests.helpers import memory_locks, unique, until


@pytest.fixture
def locks() -> Iterator[Locks]:
    """A client on a store of its own."""
    with memory_locks() as client:
        yield client


# --- keys -------------------------------------------------------------------------------------

BAD_KEYS: dict[str, tuple[Any, str]] = {
    "empty": ("", "cannot be empty"),
    "too long": ("x" * 513, "513 bytes.*512.*digest"),
    "too long in bytes": ("é" * 257, "514 bytes"),
    "none": (None, "string, not NoneType"),
    "bytes": (b"k", "string, not bytes"),
    "number": (5, "string, not int"),
    "list": (["k"], "string, not list"),
    "surrogate": ("\ud800", "surrogate"),
    "nul": ("a\0b", "NUL"),
}
KEYED: dict[str, Callable[[Locks, Any], Any]] = {
    "acquire": lambda locks, key: locks.acquire(key),
    "try_acquire": lambda locks, key: locks.try_acquire(key),
    "acquire_all": lambda locks, key: locks.acquire_all(["fine", key]),
    "want": lambda locks, key: locks.acquire_all([Want(key), "fine"]),
    "show": lambda locks, key: locks.show(key),
    "evict": lambda locks, key: locks.evict(key),
}


@pytest.mark.parametrize("call", KEYED)
@pytest.mark.parametrize("what", BAD_KEYS)
def test_bad_keys(locks: Locks, what: str, call: str) -> None:
    """Every call that takes a key refuses a bad one, and has done nothing."""
    key, message = BAD_KEYS[what]
    with pytest.raises(BadKey, match=message):
        KEYED[call](locks, key)
    assert list(locks.list(free=True)) == []


@pytest.mark.parametrize("prefix", [None, b"x", 5])
def test_bad_prefixes(locks: Locks, prefix: Any) -> None:
    """A prefix is a string as well; the empty one means all."""
    for call in (locks.list, locks.holders):
        with pytest.raises(BadKey, match="prefix"):
            list(call(prefix))
    with pytest.raises(BadKey, match="prefix"):
        locks.purge(prefix)
    with pytest.raises(BadKey, match="surrogate"):
        list(locks.list("\ud800"))


def test_longest_key(locks: Locks) -> None:
    """512 bytes are fine."""
    with locks.acquire("é" * 256) as lease:
        assert len(lease.key) == 256


# --- times ------------------------------------------------------------------------------------

NO_TIMES = [math.nan, math.inf, -math.inf, -1, -0.001, "5", None, 10**400, 1e305]
NO_TIMES += [True, False, Decimal(5), Decimal(0)]  # no numbers of seconds, though they look so


NO_TTLS = [0, 0.0, 0.049, 31 * 24 * 3600, timedelta(0), timedelta(days=31), *NO_TIMES]


@pytest.mark.parametrize("ttl", NO_TTLS, ids=lambda ttl: str(ttl)[:20])
def test_bad_ttls(locks: Locks, ttl: Any) -> None:
    """A ttl that is none is refused, for a client, a lease and a hand-over."""
    if ttl is not None:
        with pytest.raises(BadOption, match="ttl"):
            locks.acquire("k", ttl=ttl)
        lease = locks.acquire("other")
        with pytest.raises(BadOption, match="ttl"):
            lease.hand_over(ttl=ttl)
        assert lease.held
    with pytest.raises(BadOption, match="ttl"):
        holdfast.connect("memory://", ttl=ttl)


@pytest.mark.parametrize("span", [x for x in NO_TIMES if x is not None], ids=lambda x: str(x)[:20])
def test_bad_spans(locks: Locks, span: Any) -> None:
    """Neither a timeout, nor a `max_hold`, nor the patience with a store can be these."""
    with pytest.raises(BadOption, match="timeout"):
        locks.acquire("k", timeout=span)
    with pytest.raises(BadOption, match="max_hold"):
        locks.acquire("k", max_hold=span)
    with pytest.raises(BadOption, match="store_patience"):
        holdfast.connect("memory://", store_patience=span)
    assert list(locks.list(free=True)) == []


def test_a_refused_client_leaves_no_store_open(tmp_path: Path) -> None:
    """What was opened for it is closed again; what was given is left as it is."""
    closed: list[object] = []

    class Noticed(SQLiteStore):
        def close(self) -> None:
            closed.append(self)
            super().close()

    with patch("holdfast.stores.sqlite.SQLiteStore", Noticed):
        for connect in (holdfast.connect, aio.connect):
            with pytest.raises(BadOption, match="ttl"):
                connect(f"sqlite://{tmp_path}/locks.db", ttl=0)
    assert len(closed) == 2
    given = Noticed(tmp_path / "locks.db")
    with pytest.raises(BadOption, match="ttl"):
        holdfast.connect(given, ttl=0)
    assert len(closed) == 2
    given.close()


def test_long_spans_are_fine(locks: Locks) -> None:
    """A very long wait is no mistake."""
    for timeout in (1e9, 1e200, 10**30, timedelta.max):
        with locks.acquire("k", timeout=timeout):
            pass


@pytest.mark.parametrize("age", [0, -1, math.nan, 59, "x"])
def test_bad_retention(locks: Locks, age: Any) -> None:
    """A purge that would let fences go backwards is refused."""
    with pytest.raises(BadOption, match="older_than"):
        locks.purge(older_than=age)


# --- other options ----------------------------------------------------------------------------


def nested(levels: int) -> dict[str, Any]:
    """A dict with so many levels."""
    value: Any = "x"
    for level in range(levels - 1):
        value = [value] if level % 2 else {"x": value}
    return {"x": value}


BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "mode": ({"mode": "write"}, "'exclusive' or 'shared'"),
    "mode of another kind": ({"mode": 5}, "'exclusive' or 'shared'"),
    "counted without limit": ({"mode": "counted"}, "limit="),
    "limit and mode": ({"mode": "shared", "limit": 2}, "cannot go with"),
    "limit 0": ({"limit": 0}, "whole number"),
    "limit -1": ({"limit": -1}, "whole number"),
    "limit true": ({"limit": True}, "whole number"),
    "limit 1.5": ({"limit": 1.5}, "whole number"),
    "limit huge": ({"limit": 10**9}, "10000"),
    "fair": ({"fair": "yes"}, "True, False or None"),
    "keep": ({"keep": 1}, "True or False"),
    "owner empty": ({"owner": ""}, "owner"),
    "owner long": ({"owner": "x" * 257}, "256"),
    "owner number": ({"owner": 5}, "owner"),
    "owner surrogate": ({"owner": "\ud800"}, "UTF-8"),
    "note list": ({"note": ["x"]}, "dict"),
    "note keys": ({"note": {1: 2}}, "strings as keys"),
    "note object": ({"note": {"x": object()}}, "JSON"),
    "note big": ({"note": {"x": "y" * 5000}}, "4096"),
    "note deep": ({"note": nested(21)}, "20 levels"),
    "note very deep": ({"note": nested(900)}, "nested|recursion"),
}


@pytest.mark.parametrize("what", BAD_OPTIONS)
def test_bad_options(locks: Locks, what: str) -> None:
    """Options that make no sense are refused before anything is done."""
    options, message = BAD_OPTIONS[what]
    with pytest.raises(BadOption, match=message):
        locks.acquire("k", **options)
    assert list(locks.list(free=True)) == []


def test_a_note_that_refers_to_itself(locks: Locks) -> None:
    """A note without an end is refused."""
    note: dict[str, Any] = {}
    note["self"] = note
    with pytest.raises(BadOption, match="JSON"):
        locks.acquire("k", note=note)


@pytest.mark.parametrize("kind", ["memory", "mysql", "postgresql", "redis"])
def test_the_deepest_note(kind: str, tmp_path: Path) -> None:
    """Every store takes it, and everyone can read it."""
    target, key = TARGETS[kind](tmp_path), unique()
    with Locks(target.open()) as locks, locks.acquire(key, note=nested(20)):
        assert locks.show(key).holders[0].note == nested(20)


def test_a_note_is_taken_as_it_is_now(locks: Locks) -> None:
    """What happens to the caller's dict later does not reach the store, nor spoils a beat."""
    note: dict[str, Any] = {"step": 1, "list": [1]}
    with locks.acquire("k", note=note) as lease:
        note["step"] = object()
        note["list"].append(2)
        lease.renew()
        assert lease.note == {"step": 1, "list": [1]}
        assert locks.show("k").holders[0].note == {"step": 1, "list": [1]}


@pytest.mark.parametrize("cap", [0, -1, math.nan, "5", True])
def test_bad_caps(cap: Any) -> None:
    """A cap on beats is a number above 0."""
    with pytest.raises(BadOption, match="beats_per_second"):
        holdfast.connect("memory://", beats_per_second=cap)


@pytest.mark.parametrize("callback", [None, 5, "stop"])
def test_bad_callbacks(locks: Locks, callback: Any) -> None:
    """What cannot be called is refused at once, not when it would be needed."""
    lease = locks.acquire("k")
    for listen in (lease.on_lost, lease.on_danger, lease.on_wanted):
        with pytest.raises(BadOption, match="function"):
            listen(callback)
    if callback is not None:
        for connect in (holdfast.connect, aio.connect):
            with pytest.raises(BadOption, match="on_event"):
                connect("memory://", on_event=callback)
    lease.release()


@pytest.mark.parametrize("fence", ["7", 7.0, True])
def test_bad_fences(locks: Locks, fence: Any) -> None:
    """A fence of another type is nobody's, and is not taken for that of one who is not there."""
    with locks.acquire("k") as lease:
        with pytest.raises(BadOption, match="fence"):
            locks.evict("k", fence=fence)
        lease.renew()


@pytest.mark.parametrize("release", [1, "no", None])
def test_bad_rights(locks: Locks, release: Any) -> None:
    """The right to release is given by True and by nothing else."""
    with locks.acquire("k") as lease, pytest.raises(BadOption, match="release"):
        lease.share(release=release)


@pytest.mark.parametrize("wants", ["key", [], ["a", "a"], [Want("a"), "a"]])
def test_bad_wants(locks: Locks, wants: Any) -> None:
    """`acquire_all` wants several keys, each once."""
    with pytest.raises(BadOption, match="acquire_all"):
        locks.acquire_all(wants)


def test_options_for_a_store_that_is_open() -> None:
    """Options that could not have an effect are not quietly dropped."""
    with pytest.raises(BadOption, match="busy_s"):
        holdfast.connect(MemoryStore(), busy_s=3)


# --- places -----------------------------------------------------------------------------------

BAD_URLS: dict[Any, str] = {
    "": "scheme",
    "nonsense": "scheme",
    "/var/lib/locks.db": "sqlite:///var/lib",
    "nosuch://host": "no store for nosuch.*memory.*sqlite",
    "://x": "scheme",
    "sqlite://": "sqlite:///absolute",
    "sqlite:///:memory:": "memory://",
    "sqlite://host/path": "sqlite:///absolute",
    "sqlite:///tmp/x.db?colour=red": "no option colour",
    "memory://a/b": "memory://NAME",
    "memory://a?b=c": "memory://NAME",
    5: "URL, not by a int",
    Path("/tmp/x"): "URL",
}


@pytest.mark.parametrize("url", BAD_URLS)
def test_bad_urls(url: Any) -> None:
    """A URL that names no store says what one looks like, for both faces."""
    for connect in (holdfast.connect, aio.connect):
        with pytest.raises(BadURL, match=BAD_URLS[url]):
            connect(url)


def test_a_misspelt_option_of_the_embedded_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is named, also if the store is named by a URL."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    for place in ((), (f"sqlite://{tmp_path}/x.db",)):
        with pytest.raises(BadOption, match="no option tll"):
            holdfast.connect(*place, tll=5)


def test_bad_url_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for $HOLDFAST_URL."""
    monkeypatch.setenv("HOLDFAST_URL", "nosuch://x")
    with pytest.raises(BadURL, match="nosuch"):
        holdfast.connect()


def test_embedded_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a URL there is a file of this user's; a place where none can be says so."""
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with holdfast.connect() as locks, locks.acquire("k"):
        assert (tmp_path / "holdfast" / "locks.db").exists()
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    with pytest.raises(Misconfigured, match="HOLDFAST_URL"):
        holdfast.connect()


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_embedded_store_is_ones_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, umask: int
) -> None:
    """Nobody else on the machine sees its tokens, or can lock its file."""
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    before = os.umask(umask)
    try:
        with holdfast.connect() as locks, locks.acquire("k"):
            assert (tmp_path / "holdfast").stat().st_mode & 0o077 == 0
    finally:
        os.umask(before)


# --- tickets ----------------------------------------------------------------------------------


def test_bad_tickets(locks: Locks) -> None:
    """No ticket, a cut one, one of the other kind: `BadTicket`."""
    lease = locks.acquire("k")
    share = lease.share()
    for use in (locks.join, locks.take):
        tickets: tuple[Any, ...] = ("", "x", share[:-2], 5, None)
        for ticket in tickets:
            with pytest.raises(BadTicket):
                use(ticket)
    with pytest.raises(BadTicket, match=r"join\(\)"):
        locks.take(share)
    handed = lease.hand_over()
    with pytest.raises(BadTicket, match=r"take\(\)"):
        locks.join(handed)
    assert locks.take(handed).held


@pytest.mark.parametrize(
    "change",
    [{"ttl": -5}, {"ttl": 0}, {"ttl": 2**62}, {"key": ""}, {"key": "a\0b"}, {"key": "x" * 600}],
    ids=str,
)
def test_changed_tickets(locks: Locks, change: dict[str, Any]) -> None:
    """Who passes a ticket on cannot make the lock of it unreadable, or hold it for ever."""
    lease = locks.acquire("k")
    share, handed = lease.share(), lease.hand_over()
    for use, kind, text in ((locks.join, "share", share), (locks.take, "hand-over", handed)):
        changed = seal(kind, replace(unseal(kind, text), **change))  # type: ignore[arg-type]
        with pytest.raises(BadTicket):
            use(changed)
    assert locks.take(handed).held


def test_foreign_tickets(locks: Locks) -> None:
    """A sound ticket for a lease that is not in this store is refused, and changes nothing."""
    with memory_locks() as elsewhere:
        lease = elsewhere.acquire("k")
        share, handed = lease.share(), lease.hand_over()
    for use, ticket in ((locks.join, share), (locks.take, handed)):
        with pytest.raises(TicketRefused, match="released, evicted or lost, or"):
            use(ticket)
    assert list(locks.list(free=True)) == []


def test_a_ticket_used_twice(locks: Locks) -> None:
    """The second one is refused, and the first one goes on holding."""
    ticket = locks.acquire("k").hand_over()
    first = locks.take(ticket)
    with pytest.raises(TicketRefused):
        locks.take(ticket)
    first.renew()
    assert first.held


def test_a_joined_party_without_the_right_cannot_end_it(locks: Locks) -> None:
    """Who joined without the right to release neither hands it over nor shares that right."""
    first = locks.acquire("k")
    joined = locks.join(first.share())
    with pytest.raises(UsageError, match="release=True"):
        joined.hand_over()
    with pytest.raises(UsageError, match="release=True"):
        joined.share(release=True)
    assert joined.held
    locks.join(joined.share())
    first.renew()
    assert locks.join(first.share(release=True)).release() is True


def test_the_right_to_release_is_a_courtesy(locks: Locks) -> None:
    """Who takes a ticket apart has the token, and can end the lease: the docs say so."""
    lease = locks.acquire("k")
    given = unseal("share", lease.share())
    assert not given.may_release
    forged = seal("share", replace(given, may_release=True))
    assert locks.join(forged).release() is True
    with pytest.raises(LeaseLost):
        lease.renew()


# --- life -------------------------------------------------------------------------------------


def test_releasing_twice(locks: Locks) -> None:
    """The second time there is nothing left to do, also after the block."""
    with locks.acquire("k") as lease:
        assert lease.release() is True
        assert lease.release() is False
    with pytest.raises(LeaseLost, match="it was released"):
        lease.check()


def test_entering_what_has_ended(locks: Locks) -> None:
    """A block does not begin under a lease that was released, handed over or lost."""
    released, handed, lost = (locks.acquire(key) for key in "abc")
    released.release()
    handed.hand_over()
    locks.evict("c")
    lost.release()
    group = locks.acquire_all(["d", "e"])
    group["d"].release()
    ended: list[Any] = [released, handed, lost, group]
    for lease in ended:
        with pytest.raises(LeaseLost, match="not yours"), lease:
            pytest.fail("this would not be protected")


def test_entering_what_has_ended_in_a_task() -> None:
    """The same for asyncio."""

    async def run() -> None:
        async with aio.connect(f"memory://{unique()}") as locks:
            lease = await locks.acquire("k")
            await lease.release()
            group = await locks.acquire_all(["k"])
            await group.release()
            ended: list[Any] = [lease, group]
            for one in ended:
                with pytest.raises(LeaseLost, match="not yours"):
                    async with one:
                        pytest.fail("this would not be protected")

    asyncio.run(run())


def test_closed_client() -> None:
    """Every use of a closed client says so."""
    with memory_locks() as locks:
        lease = locks.acquire("k")
        ticket = lease.share()
    locks.close()
    for call in (
        lambda: locks.acquire("k"),
        lambda: locks.try_acquire("k"),
        lambda: locks.acquire_all(["k"]),
        lambda: locks.join(ticket),
        lambda: locks.show("k"),
        lambda: list(locks.holders()),
        lambda: locks.evict("k"),
        lambda: locks.purge(),
        lambda: locks.setup(),
        lease.renew,
        lease.hand_over,
    ):
        with pytest.raises(ClientClosed, match=r"connect\(\) again"):
            call()
    assert lease.release() is False
    assert not lease.held
    with pytest.raises(LeaseLost, match="its client was closed"):
        lease.check()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("fair", [True, False])
def test_closing_ends_a_wait(kind: str, fair: bool, tmp_path: Path) -> None:
    """A call that waits in another thread while the client is closed is told, soon."""
    url = f"memory://{unique()}" if kind == "memory" else f"sqlite://{tmp_path}/locks.db"
    with holdfast.connect(url) as other, other.acquire("k", ttl=60):
        locks, said = holdfast.connect(url), list[Exception]()

        def wait() -> None:
            try:
                locks.acquire("k", fair=fair)
            except Exception as exc:
                said.append(exc)

        thread = threading.Thread(target=wait)
        thread.start()
        if fair:
            until(lambda: other.show("k").waiters)
        locks.close()
        thread.join(10)
        assert not thread.is_alive()
        assert [type(exc) for exc in said] == [ClientClosed]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_closing_ends_a_wait_of_a_task(kind: str, tmp_path: Path) -> None:
    """The same for asyncio."""
    url = f"memory://{unique()}" if kind == "memory" else f"sqlite://{tmp_path}/locks.db"

    async def run() -> None:
        locks = aio.connect(url)
        waiting = asyncio.ensure_future(locks.acquire("k"))
        await asyncio.sleep(0.05)
        await locks.close()
        with pytest.raises(ClientClosed):
            async with asyncio.timeout(10):
                await waiting

    with holdfast.connect(url) as other, other.acquire("k", ttl=60):
        asyncio.run(run())


def test_reentrant_acquire(locks: Locks) -> None:
    """Asking again for what one holds is refused or times out like anybody else's claim,
    and the first lease goes on being kept."""
    with locks.acquire("k", ttl=0.5) as lease:
        assert locks.try_acquire("k") is None
        with pytest.raises(Busy):
            locks.acquire("k", timeout=0)
        with pytest.raises(AcquireTimeout, match=r"not free within 0\.7 s: it is held by"):
            locks.acquire("k", timeout=0.7)
        assert lease.held
    with locks.acquire("k", timeout=0):
        pass


def test_errors_are_sorted() -> None:
    """Everything is a `HoldfastError`; a mistake is a `ValueError`, a timeout a `TimeoutError`."""
    classes = [
        thing
        for thing in vars(holdfast).values()
        if isinstance(thing, type) and issubclass(thing, Exception)
    ]
    assert len(classes) > 20
    for error in classes:
        assert issubclass(error, HoldfastError)
        assert str(error()), error
        assert "\n" not in str(error()), error
    assert issubclass(UsageError, ValueError)
    assert issubclass(AcquireTimeout, TimeoutError)
