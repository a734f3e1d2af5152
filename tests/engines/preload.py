"""C that is preloaded into other people's programs, to change one thing about the system."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

# The programs that this needs, and Debian's names for what brings them.
NEEDS = {"gcc": ("gcc", "libc6-dev")}


def compiled(name: str, folder: Path) -> str:
    """Compile the C file `name` of this folder. Returns where the library is: for `LD_PRELOAD`."""
    source = Path(__file__).with_name(f"{name}.c")
    library = str(folder / f"{name}.so")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", library, str(source), "-ldl", "-lm"]
    subprocess.run(command, check=True, timeout=60)
    return library


class WrongClock:
    """A time of day that is wrong, for programs with its environment. It can jump."""

    def __init__(self, library: str, file: Path, wrong_by_s: float = 0.0) -> None:
        self._file = file
        self.environment = {"LD_PRELOAD": library, "WRONG_CLOCK_FILE": str(file)}
        self.jump(wrong_by_s)

    def jump(self, wrong_by_s: float) -> None:
        """Be wrong by so much from now on."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("d", wrong_by_s))
