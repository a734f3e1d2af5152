"""What the package says of itself: the README, without what works in the repository only.

A package index does not have the repository's files. There a relative link leads nowhere and a
relative picture is broken, so links become plain text, and pictures go.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)[^)]*\)")


def for_an_index(readme: str) -> str:
    """The README with absolute links, or none."""
    return LINK.sub(r"\1", PICTURE.sub("", readme))


class ReadmeHook(MetadataHookInterface):
    """Makes the package's description."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_an_index(text)}
