"""The pipeline: extract, consolidate month by month, load.

`pipeline:{dataset}` keeps two runs of a dataset apart. `consolidate:{dataset}:{year}:{month}`
keeps a run apart from whoever else writes that month, such as a backfill; its fence goes
with what is loaded, and the warehouse refuses one that is older than what it has seen.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from examples.ingest_pipeline import projections, warehouse
from examples.ingest_pipeline.config import AppConfig
from examples.ingest_pipeline.extract import Row, extract
from examples.ingest_pipeline.locking import LockManager, fence_of
from examples.ingest_pipeline.warehouse import Month

logger = logging.getLogger(__name__)


@dataclass
class Run:
    """What became of a run."""

    dataset_id: str
    run_id: str
    skipped: bool = False
    loaded: list[Month] = field(default_factory=list)
    left: list[Month] = field(default_factory=list)  # for the next run


def run_pipeline(
    app_config: AppConfig, dataset_id: str, source: Path, run_id: str | None = None
) -> Run:
    """Run it once, unless it is running already."""
    run = Run(dataset_id, run_id or f"run-{time.time_ns() // 1_000_000}")
    lock_key = f"pipeline:{dataset_id}"
    with app_config.lock_manager() as lock_manager:
        if lock_manager is not None and not lock_manager.acquire(lock_key, run.run_id):
            logger.warning("Pipeline already running for %s, skipping execution", dataset_id)
            run.skipped = True
            return run
        try:
            for month, rows in sorted(_by_month(extract(source)).items()):
                done = _consolidate(app_config.folder, lock_manager, run, month, rows)
                (run.loaded if done else run.left).append(month)
        finally:
            if lock_manager is not None:
                lock_manager.release(lock_key, run.run_id)
    return run


def _by_month(rows: list[Row]) -> dict[Month, list[Row]]:
    months: dict[Month, list[Row]] = defaultdict(list)
    for row in rows:
        months[row.day.year, row.day.month].append(row)
    return months


def _consolidate(
    folder: Path, lock_manager: LockManager | None, run: Run, month: Month, rows: list[Row]
) -> bool:
    year, number = month
    lock_key = f"consolidate:{run.dataset_id}:{year}:{number}"
    if lock_manager is not None and not lock_manager.acquire(lock_key, run.run_id):
        logger.warning("Somebody else is at %s: left for the next run", lock_key)
        return False
    try:
        before = warehouse.current_file(folder, run.dataset_id, month)
        after = f"projections/{quote(run.dataset_id, safe='')}/{year}-{number:02}.{run.run_id}.csv"
        merged = projections.merge(folder, before, after, rows)
        fence = fence_of(lock_manager, lock_key)
        return warehouse.load(folder, run.dataset_id, month, after, merged, fence)
    finally:
        if lock_manager is not None:
            lock_manager.release(lock_key, run.run_id)
