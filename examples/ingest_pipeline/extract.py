"""The source: lines of `day,value`."""

from __future__ import annotations

import csv
from datetime import date
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One observation."""

    day: date
    value: float


def extract(source: Path) -> list[Row]:
    """All rows; `ValueError` names the line that is none."""
    rows = []
    with source.open(newline="") as lines:
        for number, line in enumerate(csv.reader(lines), 1):
            try:
                day, value = line
                rows.append(Row(date.fromisoformat(day), float(value)))
            except ValueError as exc:
                raise ValueError(f"{source}, line {number}: {exc}") from None
    return rows
