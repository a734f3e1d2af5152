"""The page's server: its API, what it refuses, and what it remembers."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import LeaseLost, Locks
from holdfast.ui import waits
from holdfast.ui.history import History
from tests.ui.served import served


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of this test's own."""
    return f"sqlite:///{tmp_path / 'locks.db'}"


@pytest.fixture
def locks(url: str) -> Iterator[Locks]:
    """A client of it."""
    with holdfast.connect(url, owner="ann", ttl=60) as opened:
        yield opened


def test_the_api_shows_locks_and_waiters(url: str, locks: Locks) -> None:
    """Holders, waiters, notes and times, and nothing secret."""
    lease = locks.acquire("pipeline:1", note={"run": 7})
    ticket = lease.share()
    with served(url) as page:
        lock = page.lock("pipeline:1")
        text = str(page.get("api/locks"))
        assert page.get("api/locks?prefix=nope")["locks"] == []
        assert [one["key"] for one in page.get("api/locks?key=pipeline:1")["locks"]] == [
            "pipeline:1"
        ]
        about = page.get("api/about")
    (holder,) = lock["holders"]
    assert (holder["owner"], holder["note"], holder["fence"]) == ("ann", {"run": 7}, lease.fence)
    assert abs(holder["since"] - time.time()) < 120
    assert 0 < holder["expires"] - time.time() < 120
    assert lease.hold.token not in text
    assert ticket not in text
    assert about["evict"] is False


FOREIGN = [
    ({"Host": "evil.example"}, 421),
    ({"Host": "127.0.0.1:1"}, 421),
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
]


@pytest.mark.parametrize(("headers", "code"), FOREIGN)
def test_foreign_requests_are_refused(url: str, headers: dict[str, str], code: int) -> None:
    """Another Host, Origin or site gets nothing: not the page, not the data, no eviction."""
    with served(url, "--allow-evict", "--token", "sesame") as page:
        allowed = {"Authorization": "Bearer sesame", **headers}
        for path in ("", "api/locks", "api/updates", "metrics"):
            assert page.ask(path, headers=allowed)[0] == code, path
        assert page.ask("api/evict", {"key": "k"}, allowed)[0] == code


def test_every_answer_forbids_foreign_content(url: str) -> None:
    """Also a refusal has the headers, and no script of the page is inline."""
    with served(url) as page:
        for path in ("", "app.js", "style.css", "api/locks", "nothing"):
            _, headers, _ = page.ask(path)
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
        html = page.get("")
    assert "<script>" not in html
    assert "http://" not in html
    assert "https://" not in html


def test_it_is_read_only_unless_told_otherwise(url: str, locks: Locks) -> None:
    """Without --allow-evict nobody evicts, whatever they send."""
    lease = locks.acquire("k")
    with served(url, "--token", "sesame") as page:
        body = {"key": "k", "fence": lease.fence, "reason": "why", "operator": "me"}
        code, _, told = page.ask("api/evict", body, {"Authorization": "Bearer sesame"})
    assert (code, "--allow-evict" in told["error"]) == (403, True)
    lease.renew()


@pytest.mark.parametrize("token", [None, "", "wrong", "sesam", "sesame2"])
def test_evicting_needs_the_token(url: str, locks: Locks, token: str | None) -> None:
    """Reading on loopback does not."""
    lease = locks.acquire("k")
    with served(url, "--allow-evict", "--token", "sesame") as page:
        assert page.get("api/locks")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        body = {"key": "k", "fence": lease.fence, "reason": "why", "operator": "me"}
        assert page.ask("api/evict", body, headers)[0] == 401
    lease.renew()


def test_evict_with_a_reason(url: str, locks: Locks) -> None:
    """The victim learns who and why; a request that lacks something is refused."""
    lease = locks.acquire("k")
    with served(url, "--allow-evict", "--token", "sesame") as page:
        allowed = {"Authorization": "Bearer sesame"}
        whole = {"key": "k", "fence": lease.fence, "reason": "it hung", "operator": "bob"}
        lacking: list[Any] = [{"key": "k"}, [], 5]
        for change in ({"reason": " "}, {"operator": ""}, {"fence": "7"}, {"key": ""}, {"key": 5}):
            lacking.append({**whole, **change})
        for bad in lacking:
            assert page.ask("api/evict", bad, allowed)[0] == 400, bad
        assert page.ask("api/evict", whole, allowed)[2] == {"evicted": ["ann"]}
        assert page.ask("api/evict", whole, allowed)[2] == {"evicted": []}
        (past,) = page.lock("k")["history"]
        assert (past["what"], past["by"], past["reason"]) == ("evicted", "bob", "it hung")
        span = page.until("api/timeline", lambda told: any(one["end"] for one in told["spans"]))[
            "spans"
        ][0]
        assert (span["owner"], span["ending"], span["detail"]) == (
            "ann", "evicted", "by bob: it hung",
        )  # fmt: skip
    with pytest.raises(LeaseLost, match="evicted by bob: it hung"):
        lease.renew()


def test_an_eviction_is_of_what_the_page_shows(url: str, locks: Locks) -> None:
    """A page of one prefix evicts nobody else; what is nested or endless is refused."""
    lease = locks.acquire("other:k")
    with served(url, "mine:", "--allow-evict", "--token", "sesame") as page:
        allowed = {"Authorization": "Bearer sesame"}
        body = {"key": "other:k", "fence": lease.fence, "reason": "why", "operator": "me"}
        code, _, said = page.ask("api/evict", body, allowed)
        assert (code, said["error"]) == (400, "This page shows locks that start with 'mine:'.")
        for bad in (b"[" * 9000, b'{"key":' * 1400, b" " * 20_000):
            assert page.ask("api/evict", bad, allowed)[0] == 400
    lease.renew()


def test_another_address_needs_the_token_to_read(url: str) -> None:
    """The page itself has no data in it, and is served to all."""
    with served(url, "--host", "0.0.0.0", "--name", "127.0.0.1", "--token", "sesame") as page:
        assert page.ask("")[0] == 200
        for path in ("api/locks", "api/about", "api/updates", "api/timeline", "metrics"):
            assert page.ask(path)[0] == 401, path
        code, _, _ = page.ask("api/locks", headers={"Authorization": "Bearer sesame"})
        assert code == 200


def test_metrics_of_all_locks(url: str, locks: Locks) -> None:
    """A scrape of the page counts what it sees, by prefix."""
    pytest.importorskip("prometheus_client")
    locks.acquire("jobs:1")
    locks.acquire("db:1")
    with served(url, "--label", "jobs:") as page:
        page.lock("jobs:1")
        text = page.get("metrics")
    assert 'holdfast_seen_held{lock="jobs:"} 1.0' in text
    assert 'holdfast_seen_held{lock="other"} 1.0' in text
    assert 'holdfast_request_seconds_count{error="",request="scan"}' in text


def test_history_survives_a_restart(url: str, locks: Locks, tmp_path: Path) -> None:
    """What was seen before is there, and the time in between is a gap."""
    file = str(tmp_path / "history.db")
    kept = locks.acquire("kept")
    with served(url, "--history", file) as page:
        with locks.acquire("before"):
            page.lock("before")
        page.until("api/timeline", lambda t: any(s["end"] for s in t["spans"]))
    with served(url, "--history", file) as page:
        page.lock("kept")
        told = page.until("api/timeline", lambda told: told["gaps"])
        spans = {one["key"]: one for one in told["spans"]}
        assert spans["before"]["ending"] == "released"
        assert spans["kept"]["end"] is None
        assert len(told["spans"]) == 2
        assert told["gaps"][-1]["why"] == "the page was not running"
    assert kept.held


# --- pure -------------------------------------------------------------------------------------


def seen(key: str, fence: int, owners: dict[str, int], waiters: tuple[str, ...] = ()) -> Any:
    """A lock as it was seen."""
    return {
        "key": key, "fence": fence, "fault": None, "history": [],
        "holders": [{"owner": name, "fence": f, "since": 1.0, "mode": "exclusive"}
                    for name, f in owners.items()],
        "waiters": [{"owner": name, "since": 2.0, "mode": "exclusive"} for name in waiters],
    }  # fmt: skip


def test_a_grant_between_two_looks_is_known_by_its_fence() -> None:
    """A larger fence that nobody holds says that there was somebody, and when."""
    history = History()
    history.saw([seen("k", 1_000_000, {})], 1.0)
    history.saw([seen("k", 5_000_000, {})], 6.0)
    history.saw([seen("k", 7_000_000, {"ann": 7_000_000})], 8.0)
    assert history.between(0, 10)["unseen"] == [{"key": "k", "fence": 5_000_000, "at": 5.0}]


def test_a_key_that_is_gone_is_forgotten() -> None:
    """A page that runs for weeks does not remember every key that there ever was."""
    history = History()
    for number in range(100):
        history.saw([seen(f"k{number}", 1_000_000, {})], 1000.0 + number)
    assert list(history._fences) == ["k99"]
    history.close()


def test_a_history_that_cannot_be_written_for_a_while(tmp_path: Path) -> None:
    """It leaves a gap, and the page goes on; what was held before and after is one span."""
    history = History(tmp_path / "history.db")
    history._file.execute("PRAGMA busy_timeout = 0")
    history.saw([seen("k", 1_000_000, {"ann": 1_000_000})], 2.0)
    with closing(sqlite3.connect(tmp_path / "history.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for at in (3.0, 4.0):
            history.saw([seen("k", 1_000_000, {"ann": 1_000_000}), seen("l", 2_000_000, {})], at)
    history.saw([seen("k", 1_000_000, {"ann": 1_000_000})], 5.0)
    history.saw([seen("k", 1_000_000, {})], 6.0)
    told = history.between(0, 10)
    assert [(one["key"], one["ending"], one["end"]) for one in told["spans"]] == [
        ("k", "released", 6.0)
    ]
    (gap,) = told["gaps"]
    assert (gap["start"], gap["end"]) == (2.0, 5.0)
    assert "locked" in gap["why"]
    history.close()


def test_gaps_are_told() -> None:
    """A look that failed, and one that came late."""
    history = History()
    history.saw([], 1.0)
    history.failed("the store could not be read: down")
    history.saw([], 3.0)
    history.saw([], 4.0)
    history.saw([], 100.0)
    assert [(one["start"], one["end"]) for one in history.between(0, 200)["gaps"]] == [
        (1.0, 3.0), (4.0, 100.0),
    ]  # fmt: skip


def test_spans_begin_and_end_with_what_is_seen() -> None:
    """A holder and a waiter become spans; whoever is gone has ended."""
    history = History()
    history.saw([seen("k", 5, {"ann": 5}, ("bob",))], 2.0)
    history.saw([seen("k", 6, {"bob": 6})], 3.0)
    spans = {(one["owner"], one["kind"]): one for one in history.between(0, 10)["spans"]}
    assert spans["ann", "hold"]["ending"] == "released"
    assert spans["bob", "wait"]["ending"] == "left"
    assert spans["bob", "hold"]["end"] is None
    assert history.between(0, 10, "other")["spans"] == []
    assert history.between(0, 10, "%")["spans"] == []


def test_who_waits_for_whom() -> None:
    """Edges over keys, and circles of any length, each told once."""
    found = waits.edges(
        [
            seen("a", 1, {"ann": 1}, ("bob",)),
            seen("b", 2, {"bob": 2}, ("cy", "eve")),
            seen("c", 3, {"cy": 3}, ("ann",)),
            seen("d", 4, {"dan": 4}, ("dan",)),
        ]
    )
    assert len(found) == 5
    assert waits.cycles(found) == [["ann", "bob", "cy"], ["dan"]]
    assert waits.cycles([one for one in found if one["key"] in "ab"]) == []


def test_long_chains_need_no_recursion() -> None:
    """Ten thousand that wait in a row are no cycle."""
    chain = [
        {"waiter": str(n), "holder": str(n + 1), "key": "k", "since": 0} for n in range(10_000)
    ]
    assert waits.cycles(chain) == []
    assert len(waits.cycles([*chain, {"waiter": "10000", "holder": "0"}])[0]) == 10_001


def test_a_broken_history_is_told(tmp_path: Path) -> None:
    """A file that is not one says so, and nothing is served."""
    (tmp_path / "no.db").write_text("this is no database, and long enough to be seen as none")
    with pytest.raises(AssertionError, match="history cannot be kept"):
        with served("memory://", "--history", str(tmp_path / "no.db")):
            pass


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans, unseen grants and keys that come and go do not pile up."""
    monkeypatch.setattr("holdfast.ui.history.MOST_ROWS", 10)
    monkeypatch.setattr("holdfast.ui.history.PRUNE_S", 0.0)
    history, at = History(), 1_000_000.0
    for number in range(200):
        at += 1
        fence = int(at * 1e6)
        holder = {"owner": "ann", "mode": "exclusive", "fence": fence, "since": at}
        lock = {"fence": fence, "holders": [], "waiters": [], "history": []}
        history.saw([{**lock, "key": "often"}, {**lock, "key": f"once:{number}"}], at)
        history.saw([{**lock, "key": "held", "holders": [holder]}, {**lock, "key": "often"}], at)
    found = history.between(0.0, at + 1)
    assert len(found["spans"]) <= 12
    assert len(found["unseen"]) <= 12
    assert len(history._fences) <= 3
    history.close()
