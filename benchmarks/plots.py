"""Pictures of a run, as SVG."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.harness import Row
from benchmarks.run import Results

FOLDER = "benchmarks"
OURS, THEIRS, FLOOR = "#c2410c", "#94a3b8", "#475569"
COLOURS = {"ours": OURS, "peer": THEIRS, "floor": FLOOR}
LINES = ("#2563eb", "#059669", "#7c3aed", "#64748b", "#db2777", "#ca8a04", "#0891b2")


def draw(results: Results, folder: Path) -> list[str]:
    """Draw all pictures that there are figures for; their paths, from the page."""
    try:
        pyplot = import_module("matplotlib.pyplot")
    except ImportError:
        return []
    pyplot.switch_backend("svg")
    pyplot.rcParams.update({"svg.hashsalt": "holdfast", "font.size": 9, "svg.fonttype": "none"})
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    found = [_pairs(pyplot, results, folder)]
    found += [_growth(pyplot, results, store, folder) for store in results.engines]
    return [path for path in found if path]


def drawn(results: Results, folder: Path) -> list[str]:
    """The pictures that an earlier call of `draw` left there."""
    names = [f"{FOLDER}/{name}.svg" for name in ("pair", *results.engines)]
    return [name for name in names if (folder / name).exists()]


def _pairs(pyplot: Any, results: Results, folder: Path) -> str:
    """Everybody's uncontended pair, store by store."""
    tables = {
        store: rows
        for store in results.engines
        if (rows := [row for row in results.table("pair", store) if row.figures])
    }
    if not tables:
        return ""
    heights = [len(rows) + 0.6 for rows in tables.values()]
    figure, axes = pyplot.subplots(
        len(tables), 1, figsize=(8, 0.28 * sum(heights) + 0.5 * len(tables)),
        squeeze=False, gridspec_kw={"height_ratios": heights},
    )  # fmt: skip
    for axis, (store, rows) in zip(axes[:, 0], tables.items(), strict=True):
        _bars(axis, store, sorted(rows, key=lambda row: -row.figures["wall_us"].median))
    axes[-1, 0].set_xlabel("µs for an uncontended acquire and release (logarithmic)")
    return _save(pyplot, figure, folder, "pair.svg")


def _bars(axis: Any, store: str, rows: list[Row]) -> None:
    values = [row.figures["wall_us"].median for row in rows]
    bars = axis.barh(
        [row.contestant for row in rows], values, color=[COLOURS[row.kind] for row in rows]
    )
    axis.bar_label(bars, fmt="%.0f", padding=3)
    axis.set_xscale("log")
    axis.set_xlim(10, 30_000)
    axis.set_title(store, loc="left", fontweight="bold")
    axis.spines[["top", "right"]].set_visible(False)


def _growth(pyplot: Any, results: Results, store: str, folder: Path) -> str:
    """How cost grows with contenders, and with leases."""
    contended = [row for row in results.of("contended", store) if row.figures]
    kept = [row for row in results.of("kept", store) if row.figures]
    panels = [panel for panel in (contended, kept) if len({row.size for row in panel}) > 1]
    if not panels:
        return ""
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.5 * len(panels), 3.4), squeeze=False)
    for axis, rows in zip(axes[0], panels, strict=True):
        if rows is contended:
            _lines(axis, rows, "per_s", 1)
            axis.set(xlabel="contenders", ylabel="locks a second", xscale="log", ylim=(0, None))
            axis.legend(fontsize=7, frameon=False)
        else:
            _lines(axis, rows, "core", 100)
            axis.set(xlabel="leases kept alive", ylabel="% of a core", xscale="log", yscale="log")
        sizes = sorted({row.size for row in rows})
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{store}: how cost grows", x=0.02, ha="left", fontweight="bold")
    return _save(pyplot, figure, folder, f"{store}.svg")


def _lines(axis: Any, rows: list[Row], figure: str, scale: float) -> None:
    names = list(dict.fromkeys(row.contestant for row in rows))
    for name, colour in zip(names, (OURS, *LINES), strict=False):
        mine = sorted((row for row in rows if row.contestant == name), key=lambda row: row.size)
        values = [row.figures[figure].median * scale for row in mine]
        axis.plot([row.size for row in mine], values, marker="o", ms=3, color=colour, label=name)


def _save(pyplot: Any, figure: Any, folder: Path, name: str) -> str:
    figure.tight_layout()
    figure.savefig(folder / FOLDER / name, metadata={"Date": None})
    pyplot.close(figure)
    return f"{FOLDER}/{name}"
