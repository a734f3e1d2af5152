"""The benchmarks run and their page can be read. What they measure is not looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import history, picture, report
from benchmarks.__main__ import main
from benchmarks.harness import FULL, QUICK, TINY, Row, Scale, Stat, Turn
from benchmarks.peers import Peer, contestants
from benchmarks.peers.base import Entrant
from benchmarks.run import Part, Results, Selection, run
from benchmarks.sites import SITES, Place
from benchmarks.targets import verdicts
from benchmarks.wire import reads_in, requests_in
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.contended import overlaps
from benchmarks.workloads.pair import WarmPair
from tests.engines.base import require
from tests.engines.redis import RedisServer

# Between processes there is no memory store, and nothing on its way to it to count; nor are
# other processes' statements on their way to an SQLite file.
DISTANT = {name for name in WORKLOADS if name.startswith(("near", "far"))}
LEFT_OUT = {
    "memory": {
        *(*DISTANT, "contended", "apart", "waiting", "waiting-apart", "waiting-threads", "idle"),
        *("long-queue", "crowd", "handover", "readers", "requests", "start"),
    },
    "sqlite": {*DISTANT, "long-queue", "crowd", "import"},
}


def results(*rows: Row) -> Results:
    """A run that found this on Redis."""
    engines = {"redis": "Redis"}
    return Results("full", "today", {"Processor": "fast"}, {"redis": "1"}, engines, list(rows))


def row(contestant: str, kind: Any, micros: float, error: str = "") -> Row:
    """A row of the uncontended pair."""
    figures = {} if error else {"wall_us": Stat.of([micros]), "cpu_us": Stat.of([micros])}
    return Row("pair", "redis", contestant, kind, 0, figures, error)


def test_the_picture_shows_us_beside_the_best(tmp_path: Path) -> None:
    """It is at the top of the page, with both figures in it; without a peer there is none."""
    found = results(
        row("holdfast", "ours", 200), row("slow", "peer", 900), row("fast", "peer", 400)
    )
    page = report.page(found, [], picture.draw(found, tmp_path))
    assert page.index("summary-pair.svg") < page.index("## In short")
    drawn = ElementTree.fromstring((tmp_path / "benchmarks/summary-pair.svg").read_text())
    words = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Holdfast", "200", "fast", "400"} <= set(words)
    assert "slow" not in words
    assert picture.draw(results(row("holdfast", "ours", 200)), tmp_path) == []


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_tiny_run_measures_every_workload(store: str, tmp_path: Path) -> None:
    """Ours and one peer go through all workloads, and the page has a table of each."""
    us = ["holdfast", "holdfast.aio"]
    selection = Selection.of([store, *us, "filelock FileLock", "bare UPDATE, UPDATE"])
    found = run(selection, TINY)
    assert [row.error for row in found.rows if row.error] == []
    report.write(found, tmp_path, history.released(), pictures=True)
    page = (tmp_path / "benchmarks.md").read_text()
    shown = {name for name, workload in WORKLOADS.items() if f"## {workload.title}\n" in page}
    assert set(WORKLOADS) - shown == LEFT_OUT[store]
    assert history.load(tmp_path) == found


def test_the_summary_is_what_users_feel() -> None:
    """Ours on each store, with the best peer's in brackets, before anything else."""
    found = results(row("holdfast", "ours", 100), row("redis-py Lock", "peer", 200))
    page = report.page(found, [])
    assert "| acquire and release, µs | 100 (2.00×) |" in page
    assert "| acquire and release: CPU, µs | 100 (2.00×) |" in page
    assert "Targets" not in page
    assert page.index("## In short") < page.index("## How it was measured")


def test_the_page_says_in_words_when_we_are_slower() -> None:
    """Each situation names the stores, with what the best peer does."""
    best = row("fast", "peer", 400)
    for micros, words in ((200, "faster on redis (2.00×)"), (800, "slower on redis (0.50×)")):
        page = report.page(results(row("holdfast", "ours", micros), best), [])
        assert f"- **One caller, and nobody else wants the lock**: {words}. " in page
    alone = report.page(results(row("holdfast", "ours", 200)), [])
    assert "## When it is fast" not in alone
    assert "| Holdfast's advantage |" not in alone


def test_a_store_that_was_measured_again_is_named() -> None:
    """A run that was mended an hour later says so."""
    parts = {
        "redis": Part("2026-11-18 15:36 UTC", 90, 1),
        "mysql": Part("2026-11-18 16:41 UTC", 9, 1),
    }
    found = replace(results(row("holdfast", "ours", 200)), parts=parts, took_s=99.0)
    assert "- **Measured again after the run**: mysql\n" in report.page(found, [])
    parts["mysql"] = Part("2026-11-18 15:38 UTC", 9, 1)
    assert "Measured again" not in report.page(found, [])


def test_a_server_can_be_far_away() -> None:
    """Each pair takes at least two round trips longer, also of many processes."""
    require(RedisServer)
    near, crowd = run(Selection.of(["redis", "near", "near-contended", "holdfast"]), TINY).rows
    assert (near.error, crowd.error) == ("", "")
    assert near.figures["wall_us"].median > 2 * 500
    assert crowd.figures["per_s"].median > 0


def test_requests_of_tasks_behind_a_network_are_counted() -> None:
    """By the proxy; and they stand beside the figures of those without a network."""
    require(RedisServer)
    names = ["redis", "tasks-together", "near-tasks-together", "holdfast.aio"]
    found = run(Selection.of(names), TINY)
    _, near = found.rows
    assert (near.workload, near.error) == ("near-tasks-together", "")
    assert 0 < near.figures["requests"].median < 1  # most locks are passed on
    table, _ = report.tables(found).split("## 200 tasks of one process on 20 keys, with 0.5 ms")
    assert f"| {near.figures['requests'].median:.2f} |" in table


def test_requests_of_other_processes_are_counted() -> None:
    """Those of eight contenders, on their way to a server."""
    require(RedisServer)
    [found] = run(Selection.of(["redis", "crowd", "holdfast"]), TINY).rows
    assert found.error == ""
    assert found.figures["requests"].median >= 2  # each lock is taken and freed


@pytest.mark.parametrize(
    ("head", "reads"),
    [
        ("GET /locks/a HTTP/1.1\r\nHost: x\r\n\r\n", 1),
        ("PUT /locks/a HTTP/1.1\r\nHost: x\r\n\r\nGET /", 0),
        ("POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.GetItem\r\n\r\n{}", 1),
        ("POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.UpdateItem\r\n\r\n{}", 0),
    ],
)
def test_reads_are_told_from_writes(head: str, reads: int) -> None:
    """By method, or by what DynamoDB is asked to do; a body alone is no request."""
    assert (requests_in(head.encode()), reads_in(head.encode())) == (1, reads)
    assert (requests_in(b"GET /"), reads_in(b"GET /")) == (0, 0)


def test_a_quick_run_says_what_it_leaves_out() -> None:
    """Its page does; only the uncontended pair has all peers."""
    quick, full = replace(results(), scale="quick"), results()
    assert "**Left out**" in report.page(quick, [])
    assert "**Left out**" not in report.page(full, [])
    selection = Selection.of([], QUICK)
    for name in ("pair", "contended"):
        found = {kind.name for kind in selection.kinds(WORKLOADS[name], "redis", QUICK)}
        assert "redis-py Lock" in found
        assert ("pottery Redlock" in found) == (name == "pair")
    assert "pottery" not in selection.modules(QUICK)
    assert "pottery" in Selection.of([]).modules(FULL)


def test_who_fails_is_out_with_the_reason() -> None:
    """The others go on."""

    class Broken(WarmPair):
        @contextmanager
        def open(self, entrant: Entrant, size: int, scale: Scale) -> Iterator[Turn]:
            if entrant.contestant is Absent:
                raise ImportError("No module named 'absent'")
            with super().open(entrant, size, scale) as turn:
                yield turn

    class Absent(Peer):
        name, package = "absent", "absent"

        def __init__(self, place: Place) -> None: ...
        def lock(self, key: str) -> Any: ...

    with SITES["memory"]() as place:
        ours = Entrant(contestants("memory")[0], place)
        first, second = Broken().run([Entrant(Absent, place), ours], TINY)
    assert "not installed (No module named 'absent')" in first.error
    assert not second.error
    assert second.figures["wall_us"].n == TINY.rounds
    assert "not installed" in report.tables(results(first, second))


def test_two_holders_at_once_are_noticed() -> None:
    """One after the other is well; one within the other is not."""
    assert overlaps([(3, 4), (1, 2), (2, 3)]) == 0
    assert overlaps([(1, 9), (2, 3), (4, 5)]) == 2


def test_contestants_are_told_apart() -> None:
    """No two on a store have the same name, and each is on a store that there is."""
    for store in SITES:
        names = [kind.name for kind in contestants(store)]
        assert len(names) == len(set(names))
        assert "holdfast" in names
    assert {store for kind in contestants() for store in kind.stores} <= set(SITES)


def test_ratios_and_targets_are_told() -> None:
    """Twice as fast as a peer is 2×; a target that is missed says so."""
    found = results(row("holdfast", "ours", 100), row("redis-py Lock", "peer", 200))
    text = report.tables(found)
    assert "| redis | redis-py Lock | 200.0 | 200.0 |  | 2.00× |" in text
    assert [verdict.text for verdict in verdicts(found, found) if not verdict.holds] == []
    slower = results(row("holdfast", "ours", 300), row("redis-py Lock", "peer", 200))
    missed, worse = [verdict for verdict in verdicts(slower, found) if not verdict.holds]
    assert missed.text == "redis: uncontended pair, against the best peer (redis-py Lock)"
    assert worse.text == "every uncontended row against its peers, compared with today"
    page = report.targets_page(slower, found)
    assert "| ≥ 1× | 0.67× | **no**: [note 28](adr/0028-what-contention-costs.md) |" in page


def test_what_became_worse_is_reported() -> None:
    """A lost ratio against a peer is; a machine that is slower for all is not."""
    before = results(row("holdfast", "ours", 100), row("redis-py Lock", "peer", 300))
    slower_machine = results(row("holdfast", "ours", 200), row("redis-py Lock", "peer", 600))
    slower_we = results(row("holdfast", "ours", 200), row("redis-py Lock", "peer", 300))
    assert history.worse(slower_machine, before) == []
    [line] = history.worse(slower_we, before)
    assert "now 1.50× against redis-py Lock, before 3.00×" in line
    assert line in report.targets_page(slower_we, before)


def test_names_choose_and_wrong_ones_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A name is a store, a workload or a contestant."""
    chosen = Selection.of(["redis", "pair"])
    assert (chosen.stores, chosen.workloads, chosen.contestants) == (("redis",), ("pair",), ())
    assert not chosen.everything
    assert Selection.of([]).everything
    assert "dynamodb" not in Selection.of(["pair"], QUICK).stores
    assert "crowd" not in Selection.of(["redis"], QUICK).workloads
    assert Selection.of(["crowd"], QUICK).workloads == ("crowd",)
    assert Selection.of(["dynamodb"], QUICK).stores == ("dynamodb",)
    with pytest.raises(SystemExit, match="no 'memcached'"):
        Selection.of(["memcached"])
    assert main(["--list"]) == 0
    assert "redis-py Lock" in capsys.readouterr().out


def test_an_interrupted_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was done is stored store by store; the rest is measured, or a store that is named."""
    monkeypatch.setattr("benchmarks.__main__.WORKLOADS", {"pair": WORKLOADS["pair"]})
    monkeypatch.setattr("benchmarks.run.WORKLOADS", {"pair": WORKLOADS["pair"]})
    sites = {"memory": SITES["memory"], "sqlite": SITES["sqlite"], "file": _interrupted}
    for module in ("benchmarks.run.SITES", "benchmarks.__main__.SITES"):
        monkeypatch.setattr(module, sites)
    arguments = ["--scale", "tiny", "--out", str(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        main(arguments)
    before = history.load(tmp_path)
    assert before is not None
    assert not before.complete
    assert list(before.parts) == ["memory", "sqlite"]
    assert "| sqlite | **holdfast** |" in (tmp_path / "benchmarks.md").read_text()
    sites["file"] = SITES["file"]
    assert main(["--resume", *arguments]) == 0
    after = history.load(tmp_path)
    assert after is not None
    assert after.complete
    assert after.parts["memory"] == before.parts["memory"]
    assert main(["--resume", "memory", *arguments]) == 0
    again = history.load(tmp_path)
    assert again is not None
    assert again.parts["memory"] != before.parts["memory"]
    assert again.of("pair", "file") == after.of("pair", "file")
    assert list(again.engines) == ["memory", "sqlite", "file"]
    with pytest.raises(SystemExit, match="names of stores"):
        main(["--resume", "pair", *arguments])


def _interrupted() -> Any:
    raise KeyboardInterrupt


def test_every_missed_target_can_name_a_note() -> None:
    """Of those that the last release is measured by, all have one."""
    found = verdicts(history.released(), history.released())
    assert [verdict.text for verdict in found if not verdict.holds and not verdict.note] == []
    page = report.targets_page(history.released(), history.released())
    assert "without a note" not in page


def test_the_command_writes_where_it_is_told(tmp_path: Path) -> None:
    """The page, and the figures as JSON."""
    arguments = ["memory", "pair", "--scale", "tiny", "--out", str(tmp_path)]
    assert main(arguments) == 0
    stored = json.loads((tmp_path / "benchmarks.json").read_text())
    assert [row["contestant"] for row in stored["rows"]] == ["holdfast"]
    assert "holdfast" in (tmp_path / "benchmarks.md").read_text()


def test_the_pages_can_be_written_again(tmp_path: Path) -> None:
    """From the stored figures, with the plots that are there."""
    with pytest.raises(SystemExit, match=r"no benchmarks\.json"):
        main(["--pages", "--out", str(tmp_path)])
    found = results(row("holdfast", "ours", 100), row("redis-py Lock", "peer", 200))
    report.write(found, tmp_path, found)
    (tmp_path / "benchmarks").mkdir(exist_ok=True)
    (tmp_path / "benchmarks" / "pair.svg").write_text("<svg/>")
    assert main(["--pages", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "benchmarks.md").read_text()
    assert "| acquire and release, µs | 100 (2.00×) |" in page
    assert "![](benchmarks/pair.svg)" in page
    assert history.load(tmp_path) == found
