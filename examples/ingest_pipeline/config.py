"""How the application is set up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import holdfast
from examples.ingest_pipeline.locking import LeaseManager, LockManager


@dataclass(frozen=True)
class AppConfig:
    """Where things are. Without one of the two locks, pipelines run unprotected."""

    folder: Path  # of the projections and the warehouse
    # A table as the small DynamoDBLock uses it, beside workers that still have the old class.
    dynamodb_lock_table: str | None = None
    lock_ttl_seconds: int = 3600
    # Or any store of Holdfast, by its URL: these locks are renewed, and have a fence.
    lock_url: str | None = None

    @contextmanager
    def lock_manager(self) -> Iterator[LockManager | None]:
        """What keeps two runs apart, while one runs."""
        if self.lock_url is not None:
            with holdfast.connect(self.lock_url) as locks:
                yield LeaseManager(locks)
        elif self.dynamodb_lock_table is not None:
            from holdfast.dropin.dynamodb_lock import DynamoDBLock  # only who has boto3

            yield DynamoDBLock(self.dynamodb_lock_table, self.lock_ttl_seconds)
        else:
            yield None
