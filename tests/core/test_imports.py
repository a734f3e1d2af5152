"""The core does no I/O, and its steps are written in the one safe way. Read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast.core
from holdfast.core import caller_effects, effects

CORE = Path(holdfast.core.__file__).parent
FILES = sorted(CORE.glob("*.py"))

# Nothing in here can read a clock, draw a number, start a thread or touch the world.
ALLOWED = {
    "__future__",
    "base64",
    "collections",
    "contextlib",
    "heapq",
    "holdfast.core",
    "holdfast.errors",
    "msgspec",
    "typing",
    "weakref",
    "zlib",
}
EFFECTS = {
    name
    for module in (effects, caller_effects)
    for name, value in vars(module).items()
    if isinstance(value, type) and value.__module__ == module.__name__
} | {"NOW", "WALL"}


def imported(tree: ast.Module) -> Iterator[str]:
    """Every module that is imported anywhere in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "no relative imports"
            yield node.module or ""


def allowed(module: str) -> bool:
    """Whether the core may import this."""
    return any(module == name or module.startswith(f"{name}.") for name in ALLOWED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_core_imports_only_pure_modules(path: Path) -> None:
    """No I/O, time, randomness, threads or asyncio."""
    tree = ast.parse(path.read_text())
    assert [module for module in imported(tree) if not allowed(module)] == []


def test_errors_import_nothing() -> None:
    """What the core imports from outside itself is as pure as it is."""
    tree = ast.parse((CORE.parent / "errors.py").read_text())
    assert [module for module in imported(tree) if not allowed(module)] == []


# --- how steps are written --------------------------------------------------------------------


def called(node: ast.expr | None) -> str:
    """The name of what is called or used: `Load(key)`, `NOW`, `steps.look_steps(...)`."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_step(node: ast.expr | None) -> bool:
    """Whether this stands for an effect or for steps."""
    name = called(node)
    if name in {"NOW", "WALL"}:
        return True
    return isinstance(node, ast.Call) and (name in EFFECTS or name.endswith("_steps"))


def bare_yields(tree: ast.Module) -> list[int]:
    """Lines with a `yield` of something, outside of the effects themselves."""
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Yield)]


def forgotten(tree: ast.Module) -> list[int]:
    """Lines that make an effect or steps and do not `yield from` them.

    A swap that is put into a batch, and steps that are returned to a driver, are meant so.
    """
    meant = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.YieldFrom) and node.value is not None
    }
    expressions = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, (ast.Expr, ast.Assign, ast.Return))
    ]
    return [
        node.lineno
        for node in expressions
        if node is not None and is_step(node) and id(node) not in meant and called(node) != "Swap"
    ]


def late_effects(tree: ast.Module) -> list[int]:
    """Lines with a `yield` where a generator that is being closed would come by."""
    found = []
    for node in ast.walk(tree):
        blocks: list[ast.stmt] = []
        if isinstance(node, (ast.Try, ast.TryStar)):
            blocks += node.finalbody
            for handler in node.handlers:
                if _catches_everything(handler):
                    blocks += handler.body
        found += [
            inner.lineno
            for block in blocks
            for inner in ast.walk(block)
            if isinstance(inner, (ast.Yield, ast.YieldFrom))
        ]
    return found


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(called(kind) in {"BaseException", "GeneratorExit"} for kind in kinds)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_steps_are_written_safely(path: Path) -> None:
    """No bare yield, no forgotten `yield from`, no effect where a closed generator comes by."""
    tree = ast.parse(path.read_text())
    if not path.name.endswith("effects.py"):
        assert bare_yields(tree) == []
        assert forgotten(tree) == []
    assert late_effects(tree) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_steps_are_called_steps(path: Path) -> None:
    """Every generator in the core has the suffix `_steps` (or is an effect's `__iter__`)."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in ast.walk(node)
        ):
            assert node.name.endswith("_steps") or node.name == "__iter__", node.name


WRONG = {
    "bare": ("def x_steps():\n    entry = yield Load('k')\n", bare_yields),
    "forgotten effect": ("def x_steps():\n    Sleep(5)\n", forgotten),
    "forgotten answer": ("def x_steps():\n    now = NOW\n", forgotten),
    "forgotten steps": ("def x_steps():\n    view = look_steps(w, 'k')\n", forgotten),
    "finally": (
        "def x_steps():\n    try:\n        pass\n    finally:\n        yield from NOW\n",
        late_effects,
    ),
    "bare except": (
        "def x_steps():\n    try:\n        pass\n    except:\n        yield from NOW\n",
        late_effects,
    ),
    "base": (
        "def x_steps():\n    try:\n        pass\n    except (A, BaseException):\n"
        "        yield from NOW\n",
        late_effects,
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_checks_see_what_is_wrong(what: str) -> None:
    """The checks above are not blind."""
    source, check = WRONG[what]
    assert check(ast.parse(source)) == [source.count("\n")]


def test_the_import_check_sees_what_is_wrong() -> None:
    """Nor is this one."""
    tree = ast.parse(
        "import time\nfrom os import urandom\ndef f():\n    import holdfast.runtime.clock\n"
    )
    assert [m for m in imported(tree) if not allowed(m)] == ["time", "os", "holdfast.runtime.clock"]
