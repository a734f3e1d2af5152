"""Run all benchmarks, or those that are named."""

from __future__ import annotations

import importlib
import logging
import platform
import sys

ALL = ("foundation", "sql", "redis", "dynamodb", "blob")


def main(names: list[str]) -> None:
    """Print the tables."""
    logging.disable()
    print(f"Python {platform.python_version()} on {platform.platform()}\n")
    for name in names or ALL:
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
