"""What the fork server imports once for all processes of a crew."""

import warnings
from contextlib import suppress
from importlib import import_module

from benchmarks.peers import contestants

LIBRARIES = (
    "benchmarks.workloads", "boto3", "filelock", "hiredis", "holdfast.stores.redis",
    "holdfast.stores.sql", "holdfast.stores.sqlite", "portalocker", "pottery", "psycopg",
    "psycopg2", "pymysql", "python_dynamodb_lock.python_dynamodb_lock", "redis", "redis_lock",
    "sherlock", "sqlalchemy.dialects.mysql.pymysql", "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy_dlock", "thds.mops.pure.core.lease", "tooz.coordination", "tooz.drivers.file",
    "tooz.drivers.pgsql", "tooz.drivers.redis",
)  # fmt: skip

warnings.simplefilter("ignore")
contestants()
for library in LIBRARIES:
    with suppress(Exception):
        import_module(library)
