"""The code on the pages of the docs, for tests that run it."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def code(page: str, heading: str, language: str = "python") -> list[str]:
    """Returns the code blocks in one language below a heading (`##` or deeper) of a page."""
    text = (DOCS / page).read_text()
    parts = re.split(r"^##+ (.+)$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    found = re.findall(rf"^```{language}\n(.*?)^```", sections[heading], re.DOTALL | re.MULTILINE)
    assert found, f"{page} has no {language} under {heading!r}"
    return found


def page(name: str, language: str = "python") -> list[str]:
    """Returns the code blocks in one language of a page, in order."""
    text = (DOCS / f"{name}.md").read_text()
    return re.findall(rf"^```{language}(?: [^\n]*)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
