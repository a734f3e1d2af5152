"""The wheel and the sdist: what is in them, what they say of themselves, and that they work."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import holdfast
from tests.extras.environments import (
    EXTRAS,
    LENIENT,
    PROJECT,
    Environment,
    borrowed,
    build,
    wrong,
)
from tests.extras.probe import FEATURES

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel."""
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def in_wheel(built: tuple[Path, Path]) -> set[str]:
    """The names of its files."""
    with zipfile.ZipFile(built[1]) as wheel:
        return set(wheel.namelist())


@pytest.fixture(scope="module")
def metadata(built: tuple[Path, Path]) -> Message:
    """What the wheel says of itself."""
    with zipfile.ZipFile(built[1]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(wheel.read(name).decode())


def tracked(*folders: str) -> set[str]:
    """The files that git knows, or is about to be told of."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    return {name for name in told.stdout.splitlines() if (ROOT / name).exists()}


def test_the_wheel_is_the_package(in_wheel: set[str]) -> None:
    """Every file of the package, the metadata, and nothing else."""
    ours = {name for name in in_wheel if ".dist-info/" not in name}
    assert ours == {name.removeprefix("src/") for name in tracked("src/holdfast")}
    assert {name.split("/", 1)[1] for name in in_wheel - ours} == {
        "METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"
    }  # fmt: skip


def test_the_wheel_has_what_is_no_python(in_wheel: set[str]) -> None:
    """Type checkers' mark, scripts, statements, and the live page."""
    for name in (
        "py.typed", "stores/redis/scripts/claim.lua", "stores/sql/postgres.sql",
        "fencing/redis/admit.lua", "ui/page/index.html", "ui/page/app.js", "ui/page/style.css",
    ):  # fmt: skip
        assert f"holdfast/{name}" in in_wheel


def test_the_sdist_is_the_repository(built: tuple[Path, Path]) -> None:
    """With tests, docs and examples, so that others can build, test and package it; and no
    leftovers."""
    with tarfile.open(built[0]) as archive:
        names = {member.name.split("/", 1)[1] for member in archive if member.isfile()}
    assert names - {"PKG-INFO"} == tracked()
    assert any(name.startswith("examples/") for name in names)


def test_the_same_source_makes_the_same_files(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Byte for byte: whoever has the tag can check what was published."""
    for first, second in zip(built, build(tmp_path), strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_twine_has_nothing_to_say(built: tuple[Path, Path]) -> None:
    """Warnings are errors, as in `make dist`."""
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout


def test_it_says_what_it_is(metadata: Message) -> None:
    """Version, licence and supported versions of Python, in a form that is not too new for the
    tools of others: 2.4 is the first with a licence expression."""
    assert metadata["Metadata-Version"] == "2.4"
    assert metadata["Version"] == holdfast.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    classifiers = metadata.get_all("Classifier") or []
    for minor in range(11, 14):  # those that have run the tests
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers
    assert not [one for one in classifiers if one.startswith("License ::")]


def test_every_requirement_has_a_lower_bound() -> None:
    """`python -m tests.everywhere` runs the tests with the oldest versions that we name."""
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    for text in (text for group in groups for text in group):
        need = Requirement(text)
        if need.name != "holdfast":
            assert {spec.operator for spec in need.specifier} & {">=", "=="}, text


def test_every_extra_has_a_probe() -> None:
    """An extra that brings nothing anybody tried is not tested."""
    assert {extra for feature in FEATURES for extra in feature.extras} == set(EXTRAS)


@pytest.fixture(scope="module")
def environment(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """One environment with the wheel and without its dependencies."""
    made = Environment(tmp_path_factory.mktemp("environment"))
    made.install("--no-deps", "--no-index", str(built[1]))
    return made


@pytest.mark.parametrize("extra", [None, *EXTRAS])
def test_each_extra_alone(extra: str | None, environment: Environment, tmp_path: Path) -> None:
    """What the extra is for works, and all else says which extra it needs.

    Its libraries are lent by the environment of the tests. `python -m tests.extras` downloads them.
    """
    environment.lend(borrowed(extra, tmp_path / "lent"))
    assert wrong(environment.probe(), extra, works=LENIENT) == []


def test_the_program_is_installed(environment: Environment, tmp_path: Path) -> None:
    """`holdfast` is there and runs a command under a lock."""
    environment.lend(borrowed(None, tmp_path / "lent"))
    program = str(environment.python.with_name("holdfast"))
    url = f"sqlite://{tmp_path}/locks.db"
    command = [program, "--url", url, "run", "nightly", "--", "sh", "-c", "echo $HOLDFAST_KEY"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "nightly\n"), ran.stderr
