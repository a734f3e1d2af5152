"""The site: it builds, loads nothing from elsewhere, and its reference pages are complete."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import sqlite3
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest
from playwright.sync_api import sync_playwright

import holdfast
from holdfast import errors, fencing
from holdfast.api.leading import Candidate
from holdfast.cli.app import app
from holdfast.stores.blob import connect as blob_connect
from holdfast.stores.dynamodb import connect as dynamodb_connect
from holdfast.stores.redis import connect as redis_connect
from holdfast.stores.sql import connect as sql_connect
from holdfast.stores.sqlite import connect as sqlite_connect
from holdfast.testing.conformance import CASES
from holdfast.testing.sim.checks import CHECKERS
from tests.conformance.targets import TARGETS
from tests.engines.chromium import Chromium
from tests.engines.shared import shared
from tests.sim.mutants import MUTANTS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Scripts, styles, fonts and pictures are the site's own, so that it works offline."""
    loaded = re.compile(
        r"<(?:script|img|source|iframe)[^>]*\bsrc=[\"']?(https?:)?//", re.IGNORECASE
    )
    styles = re.compile(
        r"<link[^>]*rel=[\"']?(?:stylesheet|icon|preconnect)[^>]*href=[\"']?https?:"
    )
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert loaded.search(text) is None, page
        assert styles.search(text) is None, page


def test_the_changelog_is_a_page(site: Path) -> None:
    """Its links lead to pages of the site, as the strict build has checked."""
    text = (site / "changelog" / "index.html").read_text()
    assert f"[{holdfast.__version__}]" in text
    assert 'href="../fencing/"' in text


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The site's address on loopback."""
    handler = partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    """Logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        pass


LIMIT_MS = 60_000
TOO_WIDE = """async pages => {
  const shown = document.querySelector("article"), root = document.scrollingElement, found = []
  for (const page of pages) {
    const text = await (await fetch(page)).text()
    const other = new DOMParser().parseFromString(text, "text/html")
    shown.innerHTML = other.querySelector("article").innerHTML
    if (root.scrollWidth > root.clientWidth) found.push(page)
    const code = [...shown.querySelectorAll("pre > code")]
    if (innerWidth > 1200 && code.some(it => it.scrollWidth > it.clientWidth)) found.push(page)
  }
  return found
}"""


def test_every_page_fits_a_screen_and_a_phone(site: Path, served: str) -> None:
    """No page scrolls sideways, or asks anybody else for anything; on a laptop's screen no code
    scrolls either.

    Two pages are opened; the text of the others is put into the second, which is much faster.
    """
    pages = [f"{served}{page.parent.relative_to(site)}/" for page in site.rglob("index.html")]
    asked: set[str] = set()
    with sync_playwright() as playwright:
        url = shared(Chromium).url
        browser = playwright.chromium.connect_over_cdp(url, timeout=LIMIT_MS)
        tab = browser.new_page()
        tab.set_default_timeout(LIMIT_MS)
        tab.on("request", lambda request: asked.add(request.url))
        for opened, shown in ((served, [served]), (f"{served}howto/", pages)):
            tab.goto(opened)
            for width in (1280, 390):
                tab.set_viewport_size({"width": width, "height": 900})
                assert tab.evaluate(TOO_WIDE, shown) == [], width
        tab.close()
    assert {url for url in asked if not url.startswith((served, "data:"))} == set()


# What is typed before the index was read is lost. (`fill` would press no key, on which it waits.)
SEARCH_IS_READY = """() =>
  !document.querySelector(".md-search-result__meta").textContent.includes("Initializing")"""


def test_the_search_finds_what_to_do(served: str) -> None:
    """It needs nothing but the site's own files, and an error's message leads to its page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(shared(Chromium).url, timeout=LIMIT_MS)
        tab = browser.new_page()
        tab.set_default_timeout(LIMIT_MS)
        tab.goto(served)
        tab.click("input.md-search__input")
        tab.wait_for_function(SEARCH_IS_READY)
        tab.type("input.md-search__input", "could not be renewed in time")
        tab.wait_for_selector(".md-search-result__item")
        first = tab.locator(".md-search-result__link").first.get_attribute("href")
        tab.close()
    assert first is not None
    assert "/troubleshooting/" in first


PUBLIC = [
    "holdfast", "holdfast.fencing", "holdfast.fencing.sql", "holdfast.fencing.dynamodb",
    "holdfast.fencing.redis", "holdfast.fencing.blob", "holdfast.fencing.files",
    "holdfast.fencing.http", "holdfast.results", "holdfast.testing",
    "holdfast.integrations.celery", "holdfast.integrations.django",
    "holdfast.integrations.fastapi", "holdfast.integrations.dogpile", "holdfast.integrations.tooz",
]  # fmt: skip


@pytest.mark.parametrize("module", PUBLIC)
def test_the_reference_has_every_public_name(module: str) -> None:
    """Classes and functions; constants, modules and objects that a page describes need no entry.
    The strict build knows whether there is such a thing."""
    pages = [DOCS / "reference.md", *(DOCS / "reference").glob("*.md")]
    shown = set(
        re.findall(r"^::: holdfast[\w.]*\.(\w+)$", "".join(map(_text, pages)), re.MULTILINE)
    )

    with warnings.catch_warnings(action="ignore"):  # tooz imports eventlet, which is deprecated
        public = importlib.import_module(module)
    named = {name: getattr(public, name) for name in public.__all__}
    calls = {
        name for name, value in named.items() if inspect.isclass(value) or inspect.isroutine(value)
    }
    assert calls - shown == set()


@pytest.mark.parametrize("kind", [holdfast.Locks, holdfast.Lease, holdfast.Leases, Candidate])
def test_what_is_in_the_reference_says_what_it_does(kind: type) -> None:
    """The reference leaves out what has no docstring."""
    public = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    assert [name for name, value in public.items() if not inspect.getdoc(value)] == []


def _text(page: Path) -> str:
    return page.read_text()


CALLS: dict[str, Callable[..., object]] = {
    "connect": holdfast.connect,
    "acquire": holdfast.Locks.acquire,
    "once": holdfast.Locks.once,
    "lead": holdfast.Locks.lead,
}
OPTIONS = {
    **{
        call: set(inspect.signature(function).parameters) - {"self", "key", "store_options"}
        for call, function in CALLS.items()
    },
    "sqlite": set(sqlite_connect.OPTIONS),
    "sql": set(sql_connect.OURS) | {"sync_engine"},
    "redis": {*redis_connect._OPTIONS, *redis_connect._TIMEOUTS},
    "dynamodb": set(dynamodb_connect.Options.__struct_fields__),
    "blob": set(blob_connect.Settings.__struct_fields__),
}


@pytest.mark.parametrize("of", OPTIONS)
def test_every_option_is_in_the_configuration(of: str) -> None:
    """One page has them all, and the page of a store has its own."""
    pages = [DOCS / "configuration.md"]
    if of == "sql":
        pages.append(DOCS / "stores" / "postgresql.md")
    elif of not in CALLS:
        pages.append(DOCS / "stores" / f"{of}.md")
    for page in pages:
        text = page.read_text()
        assert {name for name in OPTIONS[of] if f"`{name}`" not in text} == set(), page


def test_the_defaults_in_the_configuration_are_those_of_the_code() -> None:
    """Those that are written as a value."""
    page = _text(DOCS / "configuration.md")
    for heading, call in (("`connect(…)`", "connect"), ("`acquire(…)`, ", "acquire")):
        section = page.split(f"## {heading}")[1].split("\n## ")[0]
        rows = re.findall(r"^\| `(\w+)` \| (\d+|None|True|False) \|", section, re.MULTILINE)
        parameters = inspect.signature(CALLS[call]).parameters
        assert rows
        for name, default in rows:
            assert ast.literal_eval(default) == parameters[name].default, name


def test_every_flag_and_variable_is_on_its_page() -> None:
    """Each flag on the page of the command line, each variable for all commands in the
    configuration."""
    page, configuration = _text(DOCS / "cli.md"), _text(DOCS / "configuration.md")
    group = click.Context(app, info_name="holdfast")
    flags: set[str] = set()
    for name in app.list_commands(group):
        command = app.get_command(group, name)
        assert command is not None
        assert f"`holdfast {name}" in page
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                flags |= {flag for flag in parameter.opts if flag.startswith("--")}
                shared = isinstance(parameter.envvar, str) and not parameter.expose_value
                assert not shared or f"`{parameter.envvar}`" in configuration
    assert {flag for flag in flags - {"--help", "--version"} if f"`{flag}" not in page} == set()


def test_every_error_is_on_the_page() -> None:
    """What to catch: nothing that can be raised is missing."""
    page = (DOCS / "errors.md").read_text()
    named = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    raised = {name for name in named if issubclass(getattr(errors, name), errors.HoldfastError)}
    assert {name for name in raised if not re.search(rf"\b{name}\b", page)} == set()


STORES = [page for page in sorted((DOCS / "stores").glob("*.md")) if page.stem != "your-own"]
HEADINGS = ["Example", "Guarantees", "How it works", "Options", "Failure modes"]


@pytest.mark.parametrize("page", STORES, ids=lambda page: page.stem)
def test_pages_of_stores_have_the_same_headings(page: Path) -> None:
    """Whoever knows one page finds everything on the others."""
    found = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    assert [heading for heading in found if heading in HEADINGS] == HEADINGS


@pytest.mark.parametrize("page", sorted(DOCS.glob("dropin-*.md")), ids=lambda page: page.stem)
def test_pages_of_drop_ins_have_the_same_headings(page: Path) -> None:
    """The change, what is the same, what is better, how to move; and the tests behind it exist."""
    text = page.read_text()
    found = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert {"The change", "Example", "What is the same", "What is better", "Moving"} <= set(found)
    proofs = re.findall(r"`(tests/dropin/[^`]+)`", text)
    assert proofs
    assert all((ROOT / proof).exists() for proof in proofs)


def test_the_figures_about_tests_are_true() -> None:
    """The page may say less than there is by now, and never more."""
    page = (DOCS / "tested.md").read_text()
    for said, there in (
        (r"both faces \| more than (\d+)", CASES),
        (r"they run \| (\d+)", TARGETS),
        (r"checkers of the simulator \| (\d+)", CHECKERS),
        (r"must catch \| (\d+)", MUTANTS),
    ):
        (figure,) = re.findall(said, page)
        assert int(figure) <= len(there)
    home = re.search(r"must catch (\d+) broken variants", (DOCS / "index.md").read_text())
    assert home is not None
    assert int(home[1]) <= len(MUTANTS)


def _evicted(locks: holdfast.Locks) -> None:
    lease = locks.acquire("evicted")
    locks.evict("evicted", operator="ann", reason="it hangs")
    lease.renew()


def _late(locks: holdfast.Locks) -> None:
    with sqlite3.connect(":memory:") as target, holdfast.connect("memory://later") as later:
        fencing.sql.setup(target)
        early = locks.acquire("late")
        fencing.sql.admit(target, later.acquire("late"))
        fencing.sql.admit(target, early)


def _used_ticket(locks: holdfast.Locks) -> None:
    with locks.acquire("shared") as lease:
        ticket = lease.share()
    locks.join(ticket)


def _not_yours(locks: holdfast.Locks) -> None:
    lease = locks.acquire("released")
    lease.release()
    lease.check()


def _counted(locks: holdfast.Locks) -> None:
    locks.acquire("gpu", limit=2)
    locks.acquire("gpu", limit=3, timeout=0)


def _closed(locks: holdfast.Locks) -> None:
    locks.close()
    locks.acquire("closed")


MISTAKES: dict[str, Callable[[holdfast.Locks], object]] = {
    "timeout": lambda locks: locks.acquire("taken", timeout=0.01),
    "busy": lambda locks: locks.acquire("taken", timeout=0),
    "limit": _counted,
    "evicted": _evicted,
    "not yours": _not_yours,
    "ticket used": _used_ticket,
    "late": _late,
    "no server": lambda _: holdfast.connect("redis://127.0.0.1:1").try_acquire("x"),
    "scheme": lambda _: holdfast.connect("mongo://host"),
    "no scheme": lambda _: holdfast.connect("host/locks.db"),
    "no folder": lambda _: holdfast.connect("sqlite:///no/such/folder/locks.db").try_acquire("x"),
    "no database": lambda _: holdfast.connect(f"sqlite:{__file__}").try_acquire("x"),
    "closed": _closed,
    "no place": lambda locks: locks.once_per("x", into="reports"),  # type: ignore[arg-type]
    "no key": lambda locks: locks.acquire(""),
    "ttl": lambda locks: locks.acquire("x", ttl=-1),
    "ticket": lambda locks: locks.join("abc"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_message_of_a_mistake_is_a_heading(mistake: str) -> None:
    """Whoever pastes an error message into the search finds what to do."""
    headings = re.findall(r"^### (.+)$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    patterns = [".*".join(map(re.escape, heading.split("…"))) for heading in headings]
    with holdfast.connect("memory://mistakes") as locks, locks.acquire("taken"):
        other = holdfast.connect("memory://mistakes")
        with pytest.raises(holdfast.HoldfastError) as raised:
            MISTAKES[mistake](other)
        other.close()
    assert any(re.match(pattern, str(raised.value)) for pattern in patterns), raised.value
