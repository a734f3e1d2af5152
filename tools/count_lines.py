"""Counts lines of code under src/holdfast: per folder, written by hand and generated.

A line counts if there is code on it: blank lines, comments and docstrings do not. SQL and Lua count
as well. `python tools/count_lines.py stores/sql` shows the files of that folder instead.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import Counter
from pathlib import Path

from async_to_sync import sources, target_of

SOURCE = Path(__file__).resolve().parents[1] / "src/holdfast"
COMMENTS = {".sql": "--", ".lua": "--"}
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(path: Path) -> int:
    """Returns how many lines of a file have code on them."""
    if path.suffix == ".py":
        return len(_python_lines(path))
    lines = (line.strip() for line in path.read_text().splitlines())
    return sum(1 for line in lines if line and not line.startswith(COMMENTS[path.suffix]))


def _python_lines(path: Path) -> set[int]:
    with path.open("rb") as file:
        tokens = [one for one in tokenize.tokenize(file.readline) if one.type not in NO_CODE]
    lines = {n for one in tokens[1:] for n in range(one.start[0], one.end[0] + 1)}
    return lines - _docstring_lines(ast.parse(path.read_text()))


def _docstring_lines(tree: ast.AST) -> set[int]:
    """A string that is a statement by itself is there for readers."""
    return {
        n
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def main() -> None:
    """Print a table for the folder that is named on the command line, or for all folders."""
    under = SOURCE / sys.argv[1] if len(sys.argv) > 1 else None
    generated = {target_of(source) for source in sources()}
    counts: dict[str, Counter[bool]] = {}
    for path in sorted((under or SOURCE).rglob("*")):
        if path.suffix in {".py", *COMMENTS}:
            name = path if under else _folder(path)
            row = counts.setdefault(str(name.relative_to(SOURCE)), Counter())
            row[path in generated] += code_lines(path)
    counts["all"] = sum(counts.values(), Counter())
    print(f"{'':<32}{'by hand':>10}{'generated':>10}")
    for label, row in counts.items():
        print(f"{label:<32}{row[False]:>10}{row[True]:>10}")


def _folder(path: Path) -> Path:
    """Returns the folder that a file counts for: `core`, or `stores/redis` with what is in it."""
    parts = path.relative_to(SOURCE).parts[:-1]
    return SOURCE.joinpath(*parts[:2])


if __name__ == "__main__":
    main()
