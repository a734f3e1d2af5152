"""What the README and the docs say works as pasted."""

from __future__ import annotations

import ast
import asyncio
import codeop
import importlib.util
import inspect
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast.testing.conformance import (
    CASES,
    FACES,
    Face,
    run_case,
    scan_cases,
    store_cases,
    wait_cases,
)

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"```{language}(?: [^\n]*)?\n(.*?)```", text, re.DOTALL)


def test_readme_example_works_as_pasted(tmp_path: Path) -> None:
    """The first example of the README runs and prints what it says."""
    example = blocks(README, "python")[0]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        [sys.executable, "-c", example], env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.stderr == ""
    assert run.returncode == 0
    assert re.search(r"loading with fence \d+", run.stdout)
    assert "nobody else runs nightly now" in run.stdout
    assert (tmp_path / ".local/state/holdfast/locks.db").exists()


def test_readme_fits_two_screens() -> None:
    """The problem, the code, a picture and the stores, without scrolling far."""
    assert len(README.splitlines()) <= 80
    assert "![" in README


def test_readme_has_no_link_that_an_index_cannot_follow() -> None:
    """There a relative link leads nowhere, and a relative picture is broken."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    shown = hook.for_an_index(README)
    assert re.findall(r"\]\((?!https?:)", shown) == []
    assert "![" not in shown
    assert blocks(shown, "python") == blocks(README, "python")
    kept = hook.for_an_index("![x](https://a/b.png)\n\n[y](https://c) [z](docs/z.md)")
    assert kept == "![x](https://a/b.png)\n\n[y](https://c) z"


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.name)
def test_python_in_the_docs_is_python(page: Path) -> None:
    """Every Python block of the docs compiles."""
    for block in blocks(page.read_text(), "python"):
        function = "async def snippet():\n" + textwrap.indent(block, "    ") + "\n    pass"
        compile(function, str(page), "exec")


def test_the_tutorial_works_as_pasted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """From the top to the bottom, after the line that it says to begin with, which makes up a
    little work; and nobody has to wait."""
    tutorial = (ROOT / "docs/tutorial.md").read_text()
    first_line = re.search(r"begin with\s+`(.+?)`", tutorial)
    assert first_line is not None
    written: list[str] = []
    names: dict[str, Any] = {"print": written.append}
    for block in (first_line[1], *blocks(tutorial, "python")):
        exec(block.replace("/tmp/", f"{tmp_path}/"), names)
    names["locks"].close()
    assert names["reports"].execute("SELECT * FROM report").fetchall() == [("November",)]
    names["reports"].close()
    assert written == ["a", "b"]
    assert caplog.messages == []


def test_the_tutorial_can_be_pasted_at_the_prompt() -> None:
    """There a block of code ends with an empty line, and nothing may follow it without one."""
    for block in blocks((ROOT / "docs/tutorial.md").read_text(), "python"):
        typed: list[str] = []
        for line in [*block.splitlines(), ""]:
            typed.append(line)
            if codeop.compile_command("\n".join(typed), symbol="single") is not None:
                typed = []
        assert typed == [], block


HOW_TOS = blocks((ROOT / "docs/howto.md").read_text(), "python")


@pytest.mark.parametrize("block", HOW_TOS, ids=lambda block: block.split("\n")[0])
def test_the_how_tos_work_as_pasted(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by itself, with a lease at hand and a little work to do."""
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite://{tmp_path}/locks.db")
    told: list[str] = []
    names: dict[str, Any] = dict.fromkeys(("read", "write", "train", "copy", "refresh"), _work)
    names["metrics"] = SimpleNamespace(count=told.append, time=lambda name, _: told.append(name))
    handler = signal.getsignal(signal.SIGTERM)
    with holdfast.connect() as locks, locks.acquire("at hand") as lease:
        names |= {"holdfast": holdfast, "locks": locks, "lease": lease, "parts": [1]}
        code = compile(block, "howto.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, {**names, "write": _work_later}))
        else:
            exec(code, names)
        if "run_pipeline" in names:
            names["run_pipeline"](7)
        if "measure" in names:
            with names["locks"] as measured, measured.acquire("measured"):
                pass
            assert told == [
                "holdfast.Started", "holdfast.Acquired", "holdfast.waited", "holdfast.Released"
            ]  # fmt: skip
    signal.signal(signal.SIGTERM, handler)


def _work(*args: object, **options: object) -> None:
    """Nothing to speak of."""


async def _work_later(**options: object) -> None:
    """The same, awaited."""


OWN_STORE = "\n".join(blocks((ROOT / "docs/stores/your-own.md").read_text(), "python"))


@pytest.mark.parametrize("face", FACES)
def test_the_store_of_the_docs_is_a_store(face: Face) -> None:
    """The store that is shown in full passes the cases about stores, as the page runs them; and
    so does the asyncio face that is shown."""
    page: dict[str, Any] = {}
    exec(OWN_STORE, page)
    native = page["MyTarget"]()
    native.open = page["MyNativeStore"]
    about_stores = {cases.__name__ for cases in (store_cases, scan_cases, wait_cases)}
    for name, case in CASES.items():
        if case.__module__ in about_stores:
            page["test_my_store"](name, face)
            if face == "async":
                run_case(name, native, face)


def test_links_lead_somewhere() -> None:
    """Relative links in the README and the docs exist."""
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
