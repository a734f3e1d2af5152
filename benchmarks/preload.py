"""What the fork server imports first, once for all processes of a crew."""

import warnings

import benchmarks.workloads  # noqa: F401
from benchmarks.peers import contestants

warnings.simplefilter("ignore")
contestants()
