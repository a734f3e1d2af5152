"""The logger, for what a plain `import holdfast` brings in.

To import `logging` takes longer than most of Holdfast, and who has not done it reads no log:
so it is imported when there is something to tell.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger

INFO = 20  # as in logging

_logger: Logger | None = None


def logger() -> Logger:
    """The one of all messages of ours."""
    global _logger
    if _logger is None:
        from logging import getLogger

        _logger = getLogger("holdfast")
    return _logger


def informed() -> bool:
    """Whether anybody reads what is told for information."""
    if _logger is not None:
        return _logger.isEnabledFor(INFO)
    return "logging" in sys.modules and logger().isEnabledFor(INFO)
