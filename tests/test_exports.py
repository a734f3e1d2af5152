"""What the package shows, and what it costs to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import aio

PUBLIC = {
    "AcquireTimeout", "BadKey", "BadOption", "BadTicket", "BadURL", "Busy", "ClientClosed",
    "ClientForked", "CorruptClock", "CorruptRecord", "ForeignStore", "HolderInfo", "HoldfastError",
    "Lease", "LeaseLost", "Leases", "LimitMismatch", "LockInfo", "Locks", "Misconfigured",
    "MissingDriver",
    "OutcomeUnknown", "Refused", "StoreFull", "StoreReadOnly", "TicketRefused", "Unavailable",
    "Unsupported", "UsageError", "WaiterInfo", "Want", "connect", "current_lease",
    "guard",
}  # fmt: skip


def test_public_names() -> None:
    """A name that comes or goes is noticed here first."""
    assert set(holdfast.__all__) >= PUBLIC
    assert list(holdfast.__all__) == sorted(holdfast.__all__)
    assert set(aio.__all__) == {"Lease", "Leases", "Locks", "Want", "connect", "guard"}
    for module in (holdfast, aio):
        for name in module.__all__:
            assert getattr(module, name).__doc__, name


def test_what_comes_later_is_shown_at_once() -> None:
    """`dir` and a wrong name work as if everything had been imported."""
    program = "import holdfast; assert set(holdfast.__all__) <= set(dir(holdfast)); holdfast.lok"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "AttributeError: module 'holdfast' has no attribute 'lok'" in ran.stderr


def test_the_other_face_needs_no_import_of_its_own() -> None:
    """`holdfast.aio` is there for who has only imported `holdfast`, as the docs write it."""
    program = "import holdfast; assert 'aio' in dir(holdfast); holdfast.aio.connect('memory://')"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_every_error_is_public() -> None:
    """Whatever we raise can be caught by its name in `holdfast`."""
    from holdfast import errors

    raised = {
        name
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, Exception)
    }
    assert raised <= set(holdfast.__all__)


def test_version_and_typing() -> None:
    """There is a version, and type checkers are told that we have types."""
    assert holdfast.__version__[0].isdigit()
    assert (Path(holdfast.__file__).parent / "py.typed").exists()


HEAVY = (
    "asyncio", "click", "rich", "sqlite3", "inspect", "urllib.parse", "importlib.metadata",
    "dataclasses", "multiprocessing", "http", "email", "ssl", "socket", "json", "hypothesis",
    "logging", "traceback", "base64", "concurrent.futures",
)  # fmt: skip


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import holdfast", HEAVY),
        (
            "import holdfast; holdfast.connect('memory://').acquire('k').release()",
            tuple(set(HEAVY) - {"urllib.parse", "logging", "traceback"}),
        ),
    ],
    ids=["import", "use"],
)
def test_import_is_light(code: str, heavy: tuple[str, ...]) -> None:
    """Importing and using the blocking face brings nothing in that it does not need.

    `-S` and `-I` keep out what the environment itself imports; msgspec's own is not ours.
    """
    paths = [path for path in sys.path if path and not path.endswith("tests")]
    program = (
        f"import sys; sys.path[:] = {paths!r}; import msgspec; before = set(sys.modules); {code}; "
        f"print(sorted((set(sys.modules) - before) & {set(heavy)!r}))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
