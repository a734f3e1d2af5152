"""mops' setting `MAINTAIN_LEASES`: whether leases are maintained in the background.

mops has it in its own configuration, where code that uses both may set it. So what counts is, in
this order: what was set here, for this thread or for the process; mops' own item, if mops is
loaded; the environment; and else it is on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

NAME = "thds.mops.pure.local.maintain_leases"
_OFF = {"0", "false", "no", "off"}


class Setting:
    """A switch with the calls that an item of mops' configuration has."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._of_process: bool | None = None
        self._of_thread: ContextVar[bool | None] = ContextVar(name, default=None)

    def __call__(self) -> bool:
        """Whether it is on, here and now."""
        for value in (self._of_thread.get(), self._of_process, self._of_mops()):
            if value is not None:
                return value
        return self._of_environment()

    def __repr__(self) -> str:
        return f"ConfigItem({self.name!r}, {self()})"

    def set_global(self, value: bool) -> None:
        """Switch it for this process."""
        self._of_process = value

    @contextmanager
    def set_local(self, value: bool) -> Iterator[bool]:
        """Switch it for this thread, within a `with`."""
        before = self._of_thread.set(value)
        try:
            yield value
        finally:
            self._of_thread.reset(before)

    def _of_mops(self) -> bool | None:
        """mops registers its items by name. Nothing of it is imported for this."""
        config: Any = sys.modules.get("thds.core.config")
        try:
            return None if config is None else bool(config.config_by_name(self.name)())
        except (AttributeError, KeyError):  # its leases are not loaded, or it has changed
            return None

    def _of_environment(self) -> bool:
        plain = self.name.replace(".", "_")
        given = (os.environ.get(name) for name in (self.name, plain, plain.upper()))
        said = next((value for value in given if value is not None), "")
        return said.lower() not in _OFF


MAINTAIN_LEASES = Setting(NAME)
