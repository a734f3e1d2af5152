"""Environments in which a built Holdfast is installed, with one extra or with none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tests.extras.probe import FEATURES, NO_SERVER, WORKS

ROOT = Path(__file__).parent.parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_OURSELVES = {"test", "lint", "docs", "bench", "release"}
EXTRAS = sorted(set(PROJECT["optional-dependencies"]) - FOR_OURSELVES)
PROBE = Path(__file__).with_name("probe.py")
# Nobody shall look for credentials on the network.
AWS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def build(into: Path) -> tuple[Path, Path]:
    """Build the sdist, and of that the wheel, as `make dist` does. Returns both."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    return built_in(into)


def built_in(folder: Path) -> tuple[Path, Path]:
    """Returns the sdist and the wheel that are there."""
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist.absolute(), wheel.absolute()


class Environment:
    """A virtual environment that has nothing yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        subprocess.run(command, check=True, timeout=60)
        self.python = folder / "bin" / "python"
        base = {"base": str(folder), "platbase": str(folder)}
        self.packages = Path(sysconfig.get_path("purelib", "venv", vars=base))

    def install(self, *what: str) -> None:
        """Install with the pip that runs the tests."""
        command = [sys.executable, "-m", "pip", "--quiet", "--python", str(self.python)]
        subprocess.run([*command, "install", *what], check=True, timeout=300)

    def lend(self, folder: Path) -> None:
        """Have it find the packages in this folder too, and in no other."""
        (self.packages / "lent.pth").write_text(f"{folder}\n")

    def probe(self, **urls: str) -> dict[str, str]:
        """Returns what works here."""
        lacking = ("PYTHONPATH", "HOLDFAST_URL")
        environment = {key: value for key, value in os.environ.items() if key not in lacking}
        ran = subprocess.run(
            [self.python, "-I", "-W", "ignore", PROBE],
            capture_output=True,
            text=True,
            timeout=110,
            cwd=self._folder,
            env=environment | AWS | {f"HOLDFAST_PROBE_{name}": url for name, url in urls.items()},
        )
        assert ran.returncode == 0, ran.stderr
        found: dict[str, str] = json.loads(ran.stdout)
        return found


def wrong(found: dict[str, str], extra: str | None, works: tuple[str, ...] = (WORKS,)) -> list[str]:
    """Returns what is not as it must be where this extra alone is installed."""
    complaints = []
    for feature in FEATURES:
        came = found[feature.name]
        if not feature.extras:
            right = came == WORKS
        elif extra in feature.extras:
            right = came in works
        else:  # a library that the one extra brings may bring that of another one
            right = f"pip install 'holdfast[{feature.extras[0]}]'" in came or (
                extra is not None and came in works
            )
        if not right:
            complaints.append(f"{feature.name}: {came}")
    return complaints


# --- without a download ---------------------------------------------------------------------

LENIENT = (WORKS, NO_SERVER)


def borrowed(extra: str | None, into: Path) -> Path:
    """Makes a folder of links to all that the extra would install, out of this environment."""
    for dist in _needed_by(Requirement(f"holdfast[{extra}]" if extra else "holdfast"), {}):
        for file in dist.files or ():
            link = into / file
            if ".." not in file.parts and not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(str(dist.locate_file(file)))
    return into


def _needed_by(wanted: Requirement, seen: dict[str, set[str]]) -> Iterator[Distribution]:
    """Yields each distribution that this requirement brings, except Holdfast."""
    name = re.sub(r"[-_.]+", "-", wanted.name).lower()
    extras = {"", *wanted.extras}
    if extras <= seen.setdefault(name, set()):
        return
    first = not seen[name]
    seen[name] |= extras
    try:
        dist = distribution(name)
    except PackageNotFoundError:
        raise AssertionError(f"{name} is not installed: pip install -e '.[test]'") from None
    if first and name != "holdfast":
        yield dist
    for text in _requirements(dist):
        need = Requirement(text)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras):
            yield from _needed_by(need, seen)


def _requirements(dist: Distribution) -> list[str]:
    """Returns what it needs. The metadata of our own installation may be older than pyproject."""
    if dist.name != "holdfast":
        return dist.requires or []
    return [
        *PROJECT["dependencies"],
        *(
            f'{need} ; extra == "{extra}"'
            for extra, needs in PROJECT["optional-dependencies"].items()
            for need in needs
        ),
    ]
