"""Write the blocking twin of every `*_async.py` in `src`.

    python tools/async_to_sync.py            write them all
    python tools/async_to_sync.py --check    say which are not up to date, and write nothing

Whatever talks to a store is written once, as async, in `NAME_async.py`. This script makes
`NAME.py` of it, beside it. How:

 1. `async` and `await` go. Names change as in `NAMES`; a name that starts with `Async` or ends
    with `_async` loses that. Words in comments and docstrings change as in `WORDS`.
 2. What differs stands in `if ASYNC: ... else: ...`, of which the second branch is left (without
    one, nothing), in `if not ASYNC: ...`, or in `this if ASYNC else that`. See
    `holdfast.runtime.flavour`.
 3. ruff sorts the imports, drops those that are no longer used, and formats.

The result is checked in, so that people and tools can read it; tests/test_generated.py fails
when it is not what this script would write.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import textwrap
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Made from {source} by tools/async_to_sync.py: change that, and run `make generate`.\n"

NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
    "AsyncIterator": "Iterator",
    "AsyncIterable": "Iterable",
    "AsyncGenerator": "Generator",
    "AsyncExitStack": "ExitStack",
    "AbstractAsyncContextManager": "AbstractContextManager",
    "asynccontextmanager": "contextmanager",
    "aclosing": "closing",
    "aclose": "close",
    "to_async": "to_async",  # what a blocking store calls the way to its asyncio twin
    "native_async": "native_async",  # one of a store's facts
}
DOTTED = (("asyncio.Event", "threading.Event"),)
WORDS = (
    ("an `async with`", "a `with`"),
    ("`async with`", "`with`"),
    ("async with", "with"),
    (" Await it, or use it in `with`.", " Use it in a `with` block."),
    ("Run an async function", "Run a function"),
)
# Tokens that stand for nothing, or only for spaces that are copied with what follows.
_NO_TEXT = (tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_TEXT = (tokenize.STRING, tokenize.COMMENT)
# What an async call returns before it is awaited; a blocking one returns what is in it.
_WRAPPER = re.compile(
    r"\b(?:Acquiring\[|Awaitable\[|Coroutine\[Any, Any, )((?:[^\[\]]|\[[^\[\]]*\])*)\]"
)
# ruff's rules for what is left over: unused imports, and the order of the others.
LEFT_OVER = "I,F401,F841,SIM117,UP028,UP035,RUF100"


def sources() -> list[Path]:
    """All files that are written by hand and have a twin."""
    return sorted((ROOT / "src").rglob("*_async.py"))


def target_of(source: Path) -> Path:
    """Where its twin is."""
    return source.with_name(source.name.removesuffix("_async.py") + ".py")


def translate(text: str, source_name: str) -> str:
    """The blocking twin of a module's text, formatted."""
    for before, after in DOTTED:
        text = text.replace(before, after)
    plain = _WRAPPER.sub(r"\1", _translate_tokens(_take_branches(text)))
    return _formatted(HEADER.format(source=source_name) + plain)


# --- what differs -----------------------------------------------------------------------------


def _take_branches(text: str) -> str:
    """The text with what is left of each choice by `ASYNC`. Choices are not nested."""
    lines = text.splitlines(keepends=True)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.If, ast.IfExp))]
    for node in sorted(nodes, key=lambda node: node.lineno, reverse=True):
        if isinstance(node, ast.IfExp):
            if _decided(node.test) == "else":
                _replace_expression(node, lines)
        elif _decided(node.test):
            lines[node.lineno - 1 : node.end_lineno] = _branch(node, lines)
    return "".join(lines)


def _decided(test: ast.expr) -> str | None:
    """Which branch is left: `if` or `else`; None: that is not about `ASYNC`."""
    first = test.values[0] if isinstance(test, ast.BoolOp) else test
    return {"ASYNC": "else", "not ASYNC": "if"}.get(ast.unparse(first))


def _replace_expression(node: ast.IfExp, lines: list[str]) -> None:
    assert node.lineno == node.end_lineno, "a choice between expressions stands on one line"
    line = lines[node.lineno - 1].encode()
    left = line[node.orelse.col_offset : node.orelse.end_col_offset]
    line = line[: node.col_offset] + left + line[node.end_col_offset :]
    lines[node.lineno - 1] = line.decode()


def _branch(node: ast.If, lines: list[str]) -> list[str]:
    """The lines of the branch that is left of a statement."""
    first = node.lineno
    if _decided(node.test) == "else":
        if not node.orelse:
            return []
        first = node.body[-1].end_lineno or first
        while lines[first].strip() != "else:":
            first += 1
        first += 1
    branch = "".join(lines[first : node.end_lineno])
    return [textwrap.indent(textwrap.dedent(branch), " " * node.col_offset)]


# --- words ------------------------------------------------------------------------------------


def _translate_tokens(text: str) -> str:
    """The text without `async` and `await`, and with other names; spacing stays."""
    out: list[str] = []
    lines = text.splitlines(keepends=True)
    at = (1, 0)
    skip_space = False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _NO_TEXT:
            continue
        gap = _between(lines, at, token.start)
        at = token.end
        out.append("" if skip_space else gap)
        skip_space = token.type == tokenize.NAME and token.string in ("async", "await")
        if not skip_space:
            out.append(_translate_token(token, _between(lines, token.start, token.end)))
    return "".join(out)


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    first = lines[start[0] - 1][start[1] :]
    return first + "".join(lines[start[0] : end[0] - 1]) + lines[end[0] - 1][: end[1]]


def _translate_token(token: tokenize.TokenInfo, text: str) -> str:
    """`text` is the token as it stands in the source: Python 3.12 shortens parts of f-strings."""
    if token.type == tokenize.NAME:
        return _translate_name(text)
    return _translate_words(text) if token.type in _TEXT else text


def _translate_name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    name = re.sub(r"^(_?)Async(?=[A-Z])", r"\1", name)
    return name.removesuffix("_async") if name != "_async" else name


def _translate_words(text: str) -> str:
    for before, after in WORDS:
        text = text.replace(before, after)
    return text


# --- ruff ---------------------------------------------------------------------------------------


def _formatted(text: str) -> str:
    config = str(ROOT / "pyproject.toml")
    name = str(ROOT / "src" / "holdfast" / "generated.py")
    stdin = ("--config", config, "--stdin-filename", name, "-")
    fixed = _ruff(
        "check", "--quiet", "--fix-only", "--unsafe-fixes", "--select", LEFT_OVER, *stdin, text=text
    )
    return _ruff("format", "--quiet", *stdin, text=fixed)


def _ruff(*arguments: str, text: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"ruff failed: {ran.stderr}\n{text}")
    return ran.stdout


def main() -> int:
    """Write the twins, or only say which are not up to date."""
    parser = argparse.ArgumentParser(description="Write the blocking twins of *_async.py.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
    check = parser.parse_args().check
    stale = []
    for source in sources():
        target = target_of(source)
        new = translate(source.read_text(), source.name)
        if not target.exists() or target.read_text() != new:
            stale.append(target)
            if not check:
                target.write_text(new)
    for target in stale:
        verb = "is not what it would be" if check else "written"
        print(f"{target.relative_to(ROOT)}: {verb}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
