"""What ARCHITECTURE.md, CONTRIBUTING.md and the design notes name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from holdfast.testing.conformance import CASES
from holdfast.testing.sim.checks import CHECKERS
from tests.sim.mutants import MUTANTS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "holdfast"
MAP = ROOT / "ARCHITECTURE.md"
PAGES = [
    MAP,
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs" / "adr").glob("*.md")),
]
# What may stand before a path: the folders of the repository, and those of the package.
FOLDERS = {path.name for home in (ROOT, SOURCE) for path in home.iterdir() if path.is_dir()}
FILES = {path.name for home in (ROOT, SOURCE) for path in home.iterdir() if path.is_file()}
PLACEHOLDERS = ("NAME", "<", "*", "…")
# Folders whose every module has a line in the map.
MAPPED = ("core", "api", "runtime", "observe", "stores", "stores/waiting")
MOST_FILES_TO_ADD = 4


def quoted(text: str) -> list[str]:
    """What stands between backticks, outside of code blocks."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.findall(r"`([^`\n]+)`", prose)


def path_of(name: str) -> str | None:
    """The path that a quoted name begins with, if it is one."""
    path = re.split(r"::?", name)[0]
    if any(mark in name for mark in PLACEHOLDERS) or not re.fullmatch(r"[\w./-]+", path):
        return None
    return path if path in FILES or ("/" in path and path.split("/")[0] in FOLDERS) else None


def found(path: str) -> Path | None:
    """Where this path leads, seen from the repository or from the package."""
    return next((home / path for home in (ROOT, SOURCE) if (home / path).exists()), None)


def names_in(path: Path) -> set[str]:
    """Everything that a module defines: functions, classes, their members, and constants."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        names |= _names_of(node, "")
    return names


def _names_of(node: ast.stmt, before: str) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return {before + node.name}
    if isinstance(node, ast.ClassDef):
        inner = (_names_of(member, f"{before}{node.name}.") for member in node.body)
        return {before + node.name}.union(*inner)
    if isinstance(node, ast.If):
        return set().union(*(_names_of(part, before) for part in (*node.body, *node.orelse)))
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {before + target.id for target in targets if isinstance(target, ast.Name)}


def section(title: str, text: str | None = None) -> str:
    """The part of the map under a heading."""
    return (text or MAP.read_text()).split(f"\n{title}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    """Every file, every name behind a colon, and every test behind two."""
    missing = []
    for name in quoted(page.read_text()):
        path = path_of(name)
        if path is None:
            continue
        where, _, what = name.partition("::" if "::" in name else ":")
        file = found(where)
        if file is None or (what and what not in names_in(file)):
            missing.append(name)
    assert missing == []


def test_every_module_is_on_the_map() -> None:
    """A room that nobody described is found by nobody."""
    named = set(quoted(MAP.read_text()))
    modules = [
        f"{folder}/{path.name}"
        for folder in MAPPED
        for path in (SOURCE / folder).glob("*.py")
        if path.name != "__init__.py"
    ]
    assert sorted(set(modules) - named) == []


def test_every_folder_is_on_the_map() -> None:
    """So is a whole package: each store, drop-in and integration."""
    named = {name.rstrip("/") for name in quoted(MAP.read_text())}
    folders = {
        str(path.parent.relative_to(SOURCE))
        for home in (".", "stores", "dropin", "integrations")
        for path in (SOURCE / home).glob("*/__init__.py")
    }
    assert sorted(folders - named - {"stores", "stores/waiting"}) == []


def test_promises_name_checks_mutants_and_cases_that_exist() -> None:
    """Each promise has a check of the simulator and mutants behind it, by their names."""
    known = {checker.rule for checker in CHECKERS}
    known |= {mutant.name for mutant in MUTANTS} | set(CASES)
    rows = [row for row in section("## The eight promises").splitlines() if row.startswith("| **")]
    assert len(rows) == 8
    for row in rows:
        *_, proofs, _ = row.split("|")
        assert "check" in proofs, row
        assert "mutants" in proofs, row
        proven = [name for name in quoted(proofs) if path_of(name) is None]
        assert set(proven) <= known, row


def test_the_checks_of_the_simulator_are_in_the_docs() -> None:
    """The page on testing has a line for every rule that is checked."""
    table = quoted((ROOT / "docs" / "testing.md").read_text())
    assert {checker.rule for checker in CHECKERS} <= set(table)


def test_additions_touch_few_files() -> None:
    """Whoever adds something changes fewer than five files."""
    additions = section("## How to add").split("\n### ")[1:]
    assert len(additions) >= 7
    for addition in additions:
        files = re.search(r"^Files: (.*?)\.\n\n", addition, re.DOTALL | re.MULTILINE)
        assert files is not None, addition
        assert 1 <= len(quoted(files[1])) <= MOST_FILES_TO_ADD, addition


def test_the_glossary_is_sorted_and_has_each_word_once() -> None:
    """One word, one meaning."""
    rows = re.findall(r"^\| ([a-z -]+) \|", section("## Glossary"), re.MULTILINE)
    words = [row for row in rows if row != "word"]
    assert words == sorted(set(words))
