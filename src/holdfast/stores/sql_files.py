"""Reads files of SQL statements, in which `-- name: load` starts the statement `load`."""

from __future__ import annotations

from pathlib import Path


def read_queries(path: Path) -> dict[str, str]:
    """Returns the statements of a file by their names."""
    queries: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("-- name:"):
            lines = queries.setdefault(line.removeprefix("-- name:").strip(), [])
        elif not line.startswith("--"):
            lines.append(line)
    return {name: "\n".join(body).strip().rstrip(";") for name, body in queries.items()}
