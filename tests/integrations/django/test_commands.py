"""`NoOverlap`: management commands of which only one runs at a time."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.core.management.base import BaseCommand

from holdfast import current_lease
from holdfast.integrations.django import NoOverlap, locks
from holdfast.testing import ChaosStore

NAME = "test_commands"  # of this module, as a command is named


class Command(NoOverlap, BaseCommand):  # type: ignore[misc]
    """Says which lock it holds."""

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--shop", default="all")
        parser.add_argument("--do", default=None)

    def handle(self, *args: Any, **options: Any) -> str:
        assert not [name for name in options if name.startswith("lock")]
        if options["do"]:
            options["do"]()
        return str(current_lease().key)


class PerShop(Command):
    """One for each shop."""

    lock_key = "import:{shop}"
    lock_busy = "skip"
    lock_ttl = 77.0


def run(command: type[Command] = Command, **options: Any) -> tuple[str, str]:
    """Returns what the command has written to stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    call_command(command(no_color=True), stdout=out, stderr=err, skip_checks=True, **options)
    return out.getvalue().strip(), err.getvalue().strip()


def code(command: type[Command] = Command, **options: Any) -> int:
    """Returns the exit code of a command that fails."""
    with pytest.raises(CommandError) as failed:
        run(command, **options)
    return int(failed.value.returncode)


def test_the_key(change: Any) -> None:
    """The command's name, or a template over its options; others see which command it is."""
    noted = []

    def look() -> None:
        (holder,) = locks.show(NAME).holders
        noted.append(holder.note)

    assert run(do=look) == (NAME, "")
    assert noted == [{"command": NAME}]
    assert run(PerShop, shop="a") == ("import:a", "")


def test_fail(change: Any) -> None:
    """By default the second one fails with the code of the command line; then it runs again."""
    with locks.acquire(NAME):
        assert code() == 75
        assert code(lock_wait=0.01) == 75
    assert run() == (NAME, "")


def test_skip(change: Any) -> None:
    """It succeeds, does nothing and says so, unless it is to be quiet."""
    with locks.acquire("import:a"):
        out, err = run(PerShop, shop="a")
        assert out == ""
        assert err.startswith("Skipped: ")
        assert run(PerShop, shop="a", verbosity=0) == ("", "")
        assert run(PerShop, shop="b")[0] == "import:b"
        assert code(PerShop, shop="a", lock_busy="fail") == 75


def test_wait(change: Any) -> None:
    """It runs when the other one has ended."""
    lease = locks.acquire(NAME)
    timer = threading.Timer(0.1, lease.release)
    timer.start()
    try:
        assert run(lock_busy="wait", lock_wait=60) == (NAME, "")
    finally:
        timer.join(20)


def test_the_ttl(change: Any) -> None:
    """As the class says, or the command line, or else the settings."""
    left: list[float] = []

    def look() -> None:
        left.append(current_lease().remaining())

    run(PerShop, do=look)
    run(PerShop, do=look, lock_ttl=200.0)
    run(do=look)
    assert [round(seconds, -1) for seconds in left] == [80, 200, 30]


def test_a_lease_that_is_lost(change: Any, holdfast_chaos: ChaosStore) -> None:
    """The command fails with the code of the command line, whether it looks or not."""

    def lose_and_look() -> None:
        holdfast_chaos.lose(NAME)
        current_lease().check()

    assert code(do=lambda: holdfast_chaos.lose(NAME)) == 76
    assert code(do=lose_and_look) == 76


def test_a_store_that_is_away(change: Any, holdfast_chaos: ChaosStore) -> None:
    """So it does if the store cannot be used."""
    change(HOLDFAST={"url": "memory://x", "request_timeout": 0.2, "store_patience": 0.2})
    locks.show("k")
    holdfast_chaos.cut()
    assert code() == 69


def test_mistakes(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the class, of the caller and of the settings."""
    monkeypatch.setattr(PerShop, "lock_key", "import:{shpo}")
    assert code(PerShop) == 64
    assert code(lock_ttl=-1.0) == 64
    monkeypatch.setattr(PerShop, "lock_busy", "sikp")
    assert code(PerShop) == 64
    change(HOLDFAST={"url": "nosuch://"})
    assert code() == 64


def test_its_own_errors_are_its_own(change: Any) -> None:
    """An error of the command goes through, and the lock is free."""

    def fail() -> None:
        raise CommandError("mine", returncode=3)

    assert code(do=fail) == 3
    assert locks.show(NAME).free


def test_the_order_of_the_classes() -> None:
    """The other way round nothing would be locked."""
    with pytest.raises(TypeError, match="before BaseCommand"):
        type("Command", (BaseCommand, NoOverlap), {})


def test_the_command_line_with_wrong_settings(change: Any) -> None:
    """Says what is wrong, with the code of the command line."""
    change(HOLDFAST={"cache": "other"})
    with pytest.raises(CommandError, match="names the cache 'other'") as failed:
        call_command("holdfast", "ls")
    assert failed.value.returncode == 64
