"""redis-py's methods for commands, as a type checker shall see them on a pipeline.

Their own annotations are those of a client that answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    class Commands:
        """All commands; each returns the pipeline."""

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

else:
    from redis.commands import CoreCommands as Commands

__all__ = ["Commands"]
