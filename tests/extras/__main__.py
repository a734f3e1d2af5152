"""Install the built wheel with each extra alone, each in an environment of its own, and the sdist.

    python -m tests.extras [--dist FOLDER] [EXTRA …]
    python -m tests.extras --names        # of all extras for users

Without a folder that has them, both are built first.

With real servers behind the stores. It downloads every driver: a minute or more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from tests.conformance.dynamodb_targets import TABLE, DynamoDBTarget
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisServer
from tests.engines.s3 import S3Server
from tests.engines.shared import shared
from tests.extras.environments import EXTRAS, Environment, build, built_in, wrong


def urls() -> dict[str, str]:
    """Returns where the stores of the probe are."""
    table = DynamoDBTarget(Path())  # makes the table
    bucket = shared(S3Server)
    bucket.create_bucket("probe")
    s3 = f"endpoint={quote(bucket.endpoint)}&region=local&access_key_id=a&secret_access_key=b"
    return {
        "REDIS": shared(RedisServer).url,
        "POSTGRESQL": shared(PostgreSQL).url(),
        "MYSQL": shared(MariaDB).url(),
        "DYNAMODB": f"dynamodb://{TABLE}?endpoint_url={table.endpoint}&region=eu-west-1",
        "S3": f"s3://probe?{s3}",
    }


def main() -> int:
    """Try them all. Returns 1 if anything was not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("chosen", nargs="*", metavar="EXTRA", choices=[*EXTRAS, []], default=[])
    parser.add_argument("--dist", type=Path)
    parser.add_argument("--names", action="store_true")
    given = parser.parse_args()
    if given.names:
        sys.stdout.write(",".join(EXTRAS) + "\n")
        return 0
    return try_extras(given.chosen, given.dist)


def try_extras(chosen: list[str], dist: Path | None) -> int:
    """Try those that are chosen, or all. Returns 1 if anything was not as it must be."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        sdist, wheel = built_in(dist) if dist else build(Path(folder))
        there = urls()
        for extra in [None, *EXTRAS]:
            if chosen and extra not in chosen:
                continue
            # The one without an extra is made from the sdist.
            source = f"{wheel}[{extra}]" if extra else str(sdist)
            place = Environment(Path(folder) / f"with-{extra}")
            place.install(source)
            complaints = wrong(place.probe(**there), extra)
            failed += len(complaints)
            lines = [f"{extra or 'sdist alone'}: {len(complaints)} wrong", *complaints]
            sys.stdout.write("\n  ".join(lines) + "\n")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
