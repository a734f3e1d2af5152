"""The picture at the top of the page: us beside the best other library on each engine.

Two panels, a file each: side by side on a screen, one below the other on a phone.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from benchmarks.compare import least, ours
from benchmarks.harness import Column, Row
from benchmarks.run import Results
from benchmarks.workloads import WORKLOADS

FOLDER = "benchmarks"
SCALED = "each store has a scale of its own"
PANELS = (
    ("pair", "An uncontended acquire and release, µs", f"shorter is better; {SCALED}"),
    ("contended", "8 processes on one key, locks a second", f"longer is better; {SCALED}"),
)
OURS, THEIRS, TEXT, FAINT = "#00796b", "#9fb3bd", "#263238", "#607d8b"
PANEL, BAR, GROUP, TOP, LABEL = 420, 220, 58, 62, 96  # widths and heights in pixels


def draw(results: Results, folder: Path) -> list[str]:
    """Write the panels that there is something to compare in; their paths from the page."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    found = []
    for name, title, better in PANELS:
        pairs = [pair for store in results.engines if (pair := _pair(results, name, store))]
        if pairs:
            found.append(f"{FOLDER}/summary-{name}.svg")
            drawn = _svg(PANEL, TOP + GROUP * len(pairs), list(_panel(title, better, pairs)))
            (folder / found[-1]).write_text(drawn)
    return found


Pair = tuple[str, Row, Row, Column]


def _pair(results: Results, name: str, store: str) -> Pair | None:
    """Our row and that of the best other library, on one engine."""
    mine, best = ours(results, name, store), least(results, name, store)
    if mine is None or best is None:
        return None
    theirs = next(row for row in results.table(name, store) if row.contestant == best[1])
    return store, mine, theirs, WORKLOADS[name].columns[0]


def _panel(title: str, better: str, pairs: list[Pair]) -> Iterator[str]:
    yield _text(16, 26, title, weight="bold", size=14)
    yield _text(16, 44, better, colour=FAINT)
    for number, (store, mine, theirs, column) in enumerate(pairs):
        y = TOP + GROUP * number
        yield _text(16, y + 22, store, weight="bold")
        values = [row.value(column) or 0.0 for row in (mine, theirs)]
        for line, (row, value) in enumerate(zip((mine, theirs), values, strict=True)):
            width = max(2.0, BAR * value / max(values))
            top = y + 20 * line
            colour = OURS if row is mine else THEIRS
            yield f'<rect x="{LABEL}" y="{top}" width="{width:.1f}" height="17" fill="{colour}"/>'
            name = "Holdfast" if row is mine else row.contestant
            inside = width > 8 * len(name)
            x = LABEL + 5 if inside else LABEL + int(width) + 5
            yield _text(x, top + 13, name, colour="#fff" if inside and row is mine else TEXT)
            yield _text(LABEL + BAR + 8, top + 13, f"{value:,.0f}")


def _text(x: int, y: int, text: str, weight: str = "", colour: str = TEXT, size: int = 12) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}"{bold}>{escape(text)}</text>'


def _svg(width: int, height: int, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" role="img">'
    )
    card = f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>'
    return "\n".join([head, card, *parts, "</svg>"]) + "\n"
