"""`NoOverlap`: management commands of which only one runs at a time.

class Command(NoOverlap, BaseCommand):
    lock_key = "import:{customer}"  # by default the command's name
    lock_busy = "skip"

    def handle(self, *args, **options): ...
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias, get_args

from django.core.management.base import BaseCommand, CommandError, OutputWrapper
from msgspec import Struct

from holdfast.api.guard import Within
from holdfast.api.leases import Lease
from holdfast.cli import codes
from holdfast.errors import BadOption, Busy, HoldfastError, LeaseLost
from holdfast.integrations.django.clients import locks

WhenBusy: TypeAlias = Literal["fail", "skip", "wait"]


class Asked(Struct, frozen=True):
    """What the command says of its lock, or the command line instead."""

    busy: WhenBusy
    wait: float | None
    ttl: float | None

    @property
    def timeout(self) -> float | None:
        """How long to wait for the lock; None: until it is free."""
        return 0.0 if self.wait is None and self.busy != "wait" else self.wait


class NoOverlap:
    """A management command that holds a lock while it runs. Put it before `BaseCommand`."""

    lock_key: str | None = None  # a template over the options of the command; None: its name
    lock_busy: WhenBusy = "fail"
    lock_wait: float | None = None  # seconds; None: none for fail and skip, endless for wait
    lock_ttl: float | None = None  # seconds; None: that of the settings

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        order = cls.__mro__
        if BaseCommand in order and order.index(BaseCommand) < order.index(NoOverlap):
            raise TypeError(
                "NoOverlap must stand before BaseCommand, or nothing is locked: class "
                f"{cls.__name__}(NoOverlap, BaseCommand)"
            )

    def create_parser(self, *args: Any, **kwargs: Any) -> Any:
        """Add the options. (A command's own `add_arguments` seldom calls that of its parents.)"""
        parser = super().create_parser(*args, **kwargs)  # type: ignore[misc]
        group = parser.add_argument_group("lock", "This command does not run twice at once.")
        group.add_argument(
            "--lock-busy",
            choices=get_args(WhenBusy),
            help=f"If it runs already: fail with exit code {codes.BUSY}, skip with exit code 0, or "
            f"wait. Default: {self.lock_busy}.",
        )
        group.add_argument(
            "--lock-wait", type=float, metavar="SECONDS", help="How long to wait for it."
        )
        group.add_argument(
            "--lock-ttl",
            type=float,
            metavar="SECONDS",
            help="How long the lock outlives this process if it is killed.",
        )
        return parser

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command under its lock."""
        given = {name: options.pop(f"lock_{name}", None) for name in ("busy", "wait", "ttl")}
        asked = Asked(
            **{
                name: getattr(self, f"lock_{name}") if value is None else value
                for name, value in given.items()
            }
        )
        with _ended_by_sigterm():
            lease = self._acquired(asked, options)
            if lease is None:
                return None
            try:
                with lease, Within(lease):
                    return super().execute(*args, **options)  # type: ignore[misc]
            except LeaseLost as lost:
                raise CommandError(str(lost), returncode=codes.LOST) from lost

    def _acquired(self, asked: Asked, options: dict[str, Any]) -> Lease | None:
        """Returns the lease, or None if the command is to be skipped."""
        try:
            if asked.busy not in get_args(WhenBusy):
                raise BadOption(f"lock_busy is 'fail', 'skip' or 'wait', not {asked.busy!r}.")
            key = self._key(options)
            return locks.acquire(
                key, ttl=asked.ttl, timeout=asked.timeout, note={"command": self._name}
            )
        except Busy as taken:
            if asked.busy != "skip":
                raise CommandError(str(taken), returncode=codes.BUSY) from None
            if options.get("verbosity", 1):
                self._err(options).write(f"Skipped: {taken}")
            return None
        except HoldfastError as trouble:
            raise CommandError(str(trouble), returncode=codes.code_of(trouble)) from trouble

    def _key(self, options: dict[str, Any]) -> str:
        template = self._name if self.lock_key is None else self.lock_key
        try:
            return template.format(**options)
        except (LookupError, ValueError, AttributeError) as exc:
            raise BadOption(
                f"lock_key is a template over the options of the command, and {template!r} does "
                f"not fit ({exc!r})."
            ) from None

    @property
    def _name(self) -> str:
        """The name of the command, which is that of its module."""
        return type(self).__module__.rpartition(".")[2]

    def _err(self, options: dict[str, Any]) -> Any:
        given = options.get("stderr")
        return OutputWrapper(given) if given else self.stderr  # type: ignore[attr-defined]


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that the lock is free at once, unless the
    program has a handler of its own."""
    usual = threading.current_thread() is threading.main_thread()
    if not usual or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(codes.SIGNALLED + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
