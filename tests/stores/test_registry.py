"""From a URL to a store: built-in ones, plug-ins, and what is missing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import BadURL, Misconfigured, MissingDriver
from holdfast.stores import registry
from holdfast.stores.base import Store
from holdfast.stores.blob import opened
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sql.mysql import MySQLDialect
from holdfast.stores.sql.postgres import PostgreSQLDialect

# For stores whose class serves several engines, and learns from its connection which one it is.
FACTS = {
    "mysql": MySQLDialect.facts,
    "postgresql": PostgreSQLDialect.facts,
    **dict.fromkeys(("az", "gs", "s3"), opened.FACTS),
}

PLUGIN = """
from holdfast.stores.memory import MemoryStore

class PluginStore(MemoryStore):
    @classmethod
    def from_url(cls, url, **options):
        store = cls()
        store.said = (url.host, url.options, options)
        return store
"""
ENTRY_POINTS = """
[holdfast.stores]
plug = hf_plugin:PluginStore
needy = hf_needy:Store
broken = hf_plugin:NoSuchClass
strange = hf_plugin:PLAIN
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with entry points, as if it were installed."""
    (tmp_path / "hf_plugin.py").write_text(PLUGIN + "\nPLAIN = 5\n")
    (tmp_path / "hf_needy.py").write_text("import nosuchdriver\n")
    info = tmp_path / "hf_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hf-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    for name in ("hf_plugin", "hf_needy"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("plugins")
def test_plugin() -> None:
    """A store that another package brings is opened by its scheme, with URL and options."""
    assert "plug" in registry.schemes()
    store = registry.open_store("plug://host?a=b", c=1)
    assert store.said == ("host", {"a": "b"}, {"c": 1})  # type: ignore[attr-defined]
    with holdfast.connect("plug://x") as locks, locks.acquire("k"):
        pass


@pytest.mark.usefixtures("plugins")
def test_plugin_without_its_driver() -> None:
    """A plug-in whose own dependency is missing says which."""
    with pytest.raises(MissingDriver, match="needs nosuchdriver: install nosuchdriver") as error:
        holdfast.connect("needy://")
    assert isinstance(error.value.__cause__, ImportError)


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize("scheme", ["broken", "strange"])
def test_plugin_that_is_no_store(scheme: str) -> None:
    """A plug-in that names something else is the plug-in's fault, and says so."""
    with pytest.raises(Misconfigured, match=f"plug-in.*{scheme}"):
        holdfast.connect(f"{scheme}://")


def test_unknown_scheme() -> None:
    """The message names what there is."""
    with pytest.raises(
        BadURL, match=r"no store for nosuch: URLs\. Known are .*memory.*null.*sqlite"
    ):
        holdfast.connect("nosuch://host")


def test_missing_driver_of_a_built_in_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is the command that helps."""
    monkeypatch.setitem(registry.BUILT_IN, "redis", "holdfast.nosuch.module:Store")
    monkeypatch.setitem(registry.EXTRAS, "redis", "redis")
    with pytest.raises(MissingDriver, match=r"pip install 'holdfast\[redis\]'"):
        holdfast.connect("redis://localhost")


def test_missing_driver_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ImportError that names no module is passed on in its own words."""

    def fail(name: str) -> None:
        raise ImportError("libfoo.so is too old")

    monkeypatch.setattr(registry, "import_module", fail)
    with pytest.raises(MissingDriver, match=r"libfoo\.so is too old"):
        holdfast.connect("memory://")


def test_schemes_are_case_insensitive() -> None:
    """As in every URL."""
    assert isinstance(registry.open_store("MEMORY://x"), MemoryStore)


def test_an_open_store_is_taken_as_it_is() -> None:
    """For stores that no URL can name."""
    store = MemoryStore()
    assert registry.open_store(store) is store


@pytest.mark.parametrize("scheme", sorted(registry.BUILT_IN))
def test_built_in_stores_have_facts(scheme: str) -> None:
    """Every built-in store says what it is."""
    module, _, name = registry.BUILT_IN[scheme].partition(":")
    try:
        store = getattr(importlib.import_module(module), name)
    except ImportError:
        assert scheme in registry.EXTRAS
        return
    assert issubclass(store, Store)
    facts = store.facts if hasattr(store, "facts") else FACTS[scheme]
    assert facts.name
    assert facts.max_key_bytes >= 512
