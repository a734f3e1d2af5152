"""Prints what CHANGELOG.md says of a version, for the page of its release.

    python -m tools.release_notes 0.2.0

Such a page does not have the repository's files, so links to them become plain text.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from hatch_build import for_an_index

CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"


def notes(changelog: str, version: str) -> str:
    """Returns the part about this version, without its heading. Nothing: there is none."""
    for part in re.split(r"^## ", changelog, flags=re.MULTILINE):
        heading, _, text = part.partition("\n")
        if heading.startswith(f"[{version}]"):
            return for_an_index(text.strip() + "\n")
    return ""


def main(version: str) -> int:
    """Print it. Returns 1 if there is nothing to print."""
    found = notes(CHANGELOG.read_text(encoding="utf-8"), version)
    print(found, end="")
    return 0 if found.strip() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
