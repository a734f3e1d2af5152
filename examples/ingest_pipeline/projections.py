"""The projections: files with everything known of a month, each written once.

A run never changes a file that others may read or write: it writes one of its own, and the
warehouse, which checks the fence, says which file is the month. So a run that comes too
late leaves a file that nobody looks at.
"""

from __future__ import annotations

import csv
from pathlib import Path

from examples.ingest_pipeline.extract import Row, extract


def merge(folder: Path, before: str | None, after: str, rows: list[Row]) -> list[Row]:
    """Write a new file with the rows of the one before it and these, which win."""
    known = [] if before is None else extract(folder / before)
    merged = sorted({row.day: row for row in [*known, *rows]}.values())
    file = folder / after
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as lines:
        csv.writer(lines).writerows((row.day.isoformat(), row.value) for row in merged)
    return merged
