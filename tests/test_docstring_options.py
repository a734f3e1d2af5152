"""Blocks of options in docstrings become lists in the API reference."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "docstring_options.py"
with_lists = runpy.run_path(str(TOOL))["with_lists"]

OPTIONS = """Get the lock.

ttl       how long the lease outlives this process
timeout   how long to wait (None: as long as it takes)
          before `AcquireTimeout`
url, locks
          where the locks are

It is renewed."""


def test_options_become_a_list() -> None:
    """Each with its name, and with all of its lines."""
    assert with_lists(OPTIONS) == (
        "Get the lock.\n\n"
        "- `ttl`: how long the lease outlives this process\n"
        "- `timeout`: how long to wait (None: as long as it takes) before `AcquireTimeout`\n"
        "- `url`, `locks`: where the locks are\n\n"
        "It is renewed."
    )


@pytest.mark.parametrize(
    "text", ["renew", "One line.", "Two lines\nof prose.", "    code  here", ""]
)
def test_other_text_stays_as_it_is(text: str) -> None:
    """Prose, code and single words are not options."""
    assert with_lists(text) == text
