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
    import sys

    from holdfast.cli.app import call

    sys.exit(call(args))
