"""For the API reference: the options in our docstrings, as lists.

Docstrings list options in two columns, for `help()` and editors:

    ttl       how long the lease outlives this process
    timeout   how long to wait

Markdown would make one paragraph of that. This extension of griffe, with which mkdocstrings reads
the code, makes a list of it.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_OPTION = re.compile(r"^(?P<name>[a-z_]+(?:, [a-z_]+)*)(?:  +|$)(?P<text>.*)$")


class OptionLists(griffe.Extension):
    """Rewrites the docstring of every function and class."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for everything it has read."""
        if obj.docstring is not None:
            obj.docstring.value = with_lists(obj.docstring.value)


def with_lists(docstring: str) -> str:
    """Returns a docstring whose blocks of options are lists."""
    return "\n\n".join(_as_list(block) or block for block in docstring.split("\n\n"))


def _as_list(block: str) -> str | None:
    """Returns a block of options as a list; None if it is none."""
    lines = block.strip("\n").splitlines()
    if not lines or (len(lines) > 1 and "  " not in block):
        return None
    items: list[str] = []
    for line in lines:
        option = _OPTION.match(line)
        if option is not None and (option["text"] or items or len(lines) > 1):
            names = ", ".join(f"`{name}`" for name in option["name"].split(", "))
            items.append(f"- {names}: {option['text']}".rstrip())
        elif line.startswith("  ") and items:
            items[-1] += f" {line.strip()}"
        else:
            return None
    return "\n".join(items) if "  " in block else None
