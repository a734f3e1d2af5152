"""`python -m examples.ingest_pipeline`: run the pipeline once."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

import holdfast
from examples.ingest_pipeline import warehouse
from examples.ingest_pipeline.config import AppConfig
from examples.ingest_pipeline.pipeline import run_pipeline

SAMPLE = Path(__file__).with_name("sample.csv")


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m examples.ingest_pipeline")
    parser.add_argument("--dataset", default="bcra_series")
    parser.add_argument("--source", type=Path, default=SAMPLE, help="lines of day,value")
    parser.add_argument("--folder", type=Path, default=Path("ingest-data"))
    locks = parser.add_mutually_exclusive_group()
    locks.add_argument(
        "--locks", default=os.environ.get("HOLDFAST_URL"), metavar="URL",
        help="a store of Holdfast; by default $HOLDFAST_URL, or a file in the folder",
    )  # fmt: skip
    locks.add_argument("--table", help="a table of the small DynamoDBLock instead")
    locks.add_argument("--unprotected", action="store_true", help="no lock at all")
    parser.add_argument("--setup", action="store_true", help="create what the store needs first")
    return parser.parse_args()


def config_from(asked: argparse.Namespace) -> AppConfig:
    """The application's configuration."""
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.unprotected or asked.table:
        return AppConfig(asked.folder, dynamodb_lock_table=asked.table)
    return AppConfig(asked.folder, lock_url=asked.locks or f"sqlite:{asked.folder}/locks.db")


def main() -> None:
    """Run it, and show what is in the warehouse then."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)
    asked = arguments()
    config = config_from(asked)
    if asked.setup and config.lock_url is not None:
        with holdfast.connect(config.lock_url) as locks:
            locks.setup()
    run = run_pipeline(config, asked.dataset, asked.source)
    if run.skipped:
        return
    print(f"{run.run_id}: {len(run.loaded)} months loaded, {len(run.left)} left")
    for dataset, year, month, days, mean, fence in warehouse.read(asked.folder):
        print(f"  {dataset} {year}-{month:02}  {days:3} days  mean {mean:8.2f}  fence {fence}")


if __name__ == "__main__":
    main()
