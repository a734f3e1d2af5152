"""The tests on every Python that is on this machine, and with the lowest versions of the
dependencies that pyproject.toml allows.

    python -m tests.everywhere [3.12 | 3.13 | … | others | lowest] … [whole] [-- OPTIONS OF PYTEST]

`others` are all but the one that runs this. Without `whole` it is the fast part, as
`tests/fast.txt` has it: `pytest @tests/fast.txt` runs it here. Each environment is made anew, in a
temporary folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
FAST = "@tests/fast.txt"
MINORS = range(11, 15)
LOWEST = "lowest"
OTHERS = "others"
WHOLE = "whole"
INSTALL_S = 900
TEST_S = 3600


def interpreters() -> dict[str, Path]:
    """Returns the supported Pythons of this machine: those on the path, and pyenv's."""
    found: dict[str, Path] = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in MINORS:
        places = [str(place) for place in sorted(pyenv.glob(f"3.{minor}.*/bin/python"))]
        for place in (shutil.which(f"python3.{minor}"), *places):
            if place is not None and _version_of(place) == f"3.{minor}":
                found[f"3.{minor}"] = Path(place)
    return found


def _version_of(python: str) -> str:
    """Returns its version, or nothing if it does not run: pyenv has stand-ins that do not."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    ran = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=60)
    return ran.stdout.strip()


def environment(python: Path, into: Path, extras: str, *, lowest: bool) -> Path:
    """Makes an environment with all that the tests need. Returns its Python."""
    made = str(into / "bin" / "python")
    uv = [sys.executable, "-m", "uv", "--quiet", "pip", "install", "--python", made]
    subprocess.run([str(python), "-m", "venv", str(into)], check=True, timeout=INSTALL_S)
    # uv is quick, and knows how to take the lowest versions. pip finds packages everywhere.
    ways = (
        [[*uv, "--resolution", "lowest-direct"]] if lowest else [uv, [made, "-m", "pip", "install"]]
    )
    for way in ways:
        command = [*way, "-e", f"{ROOT}[{extras}]"]
        if subprocess.run(command, check=way is ways[-1], timeout=INSTALL_S).returncode == 0:
            break
    return Path(made)


def run(name: str, options: list[str], tests: list[str]) -> bool:
    """Runs these tests there, and what fails once more, alone. Returns whether it passed."""
    pythons = interpreters()
    python = pythons[min(pythons, key=_minor) if name == LOWEST else name]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        extras = "test" if FAST in tests else "test,lint,docs"
        made = environment(python, Path(folder) / "environment", extras, lowest=name == LOWEST)
        installed = time.monotonic()
        pytest = [str(made), "-m", "pytest", "-q", "-o", f"cache_dir={folder}/cache"]
        again = ["--last-failed", "--last-failed-no-failures", "none"]
        passed = any(
            subprocess.run(command, cwd=ROOT, timeout=TEST_S).returncode == 0
            for command in ([*pytest, *options, *tests], [*pytest, *again, *tests])
        )
    sys.stdout.write(
        f"{name} ({python}): {'passed' if passed else 'FAILED'}, {installed - began:.0f} s to "
        f"install, {time.monotonic() - installed:.0f} s to test\n"
    )
    sys.stdout.flush()
    return passed


def _minor(version: str) -> int:
    return int(version.partition(".")[2])


def main(arguments: list[str]) -> int:
    """Run it where it is asked for, or everywhere. Returns 1 if it failed anywhere."""
    names = [name for name in arguments if re.fullmatch(rf"3\.\d+|{LOWEST}|{OTHERS}", name)]
    options = [option for option in arguments if option not in (*names, WHOLE, "--")]
    tests = [] if WHOLE in arguments else [FAST]
    if OTHERS in names:
        here = f"3.{sys.version_info.minor}"
        names = [name for name in names if name != OTHERS]
        names += [name for name in interpreters() if name != here]
        if not names:
            return 0
    passed = [run(name, options, tests) for name in names or [*interpreters(), LOWEST]]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
