"""A hook of mkdocs: the changelog is a page of the site, too.

CHANGELOG.md lies beside docs/, where people look for it; its links lead from there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"


def on_files(files: Files, *, config: Any) -> Files:
    """Add the page."""
    text = CHANGELOG.read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "changelog.md", content=text))
    return files
