"""The command line: leases for programs in any language.

`main` is the only name for others. What it needs is imported when it runs, so that
`import holdfast` knows nothing of click and rich.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    import gc
    import sys

    # Nearly all that a command makes is imported code, which is never garbage. The collector would
    # go through it time and again, and once more at the end: a seventh of a short command's time.
    gc.set_threshold(100_000)

    from holdfast.cli.app import call

    code = call(args)
    gc.freeze()
    sys.exit(code)
