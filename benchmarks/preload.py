"""What the fork server imports first, once for all processes of a crew: each of them begins by
importing the program that asked for it."""

import warnings

import benchmarks.__main__  # noqa: F401
from benchmarks.peers import contestants

warnings.simplefilter("ignore")
contestants()
