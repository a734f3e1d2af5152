"""Frees the lock of a task whose worker process died, without waiting for the ttl.

The processes of a prefork pool tell their parent through a pipe which leases they hold, and the
parent watches those processes. When one ends with a lease in its hands (`kill -9`, out of memory, a
hard time limit), nobody works under that lease any more, and the parent evicts it. What the parent
does not hear of, or cannot evict, is freed by the ttl.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import msgspec
from celery import signals
from msgspec import Struct

from holdfast.api.leases import Lease
from holdfast.errors import HoldfastError
from holdfast.integrations.celery.clients import LocksSource, locks_for
from holdfast.observe.log import printable

# A report that fits is written to a pipe as a whole, whoever else writes.
LONGEST_REPORT = 4096
# Where the system does not tell of the end of a process, look for it this often.
LOOK_EVERY_S = 1.0

logger = logging.getLogger("holdfast")

# Where the locks of each decorator are. Parent and children have the same list, as they have the
# same modules.
_sources: list[tuple[str | None, LocksSource | None]] = []
_watch: Watch | None = None


class Report(Struct, frozen=True, array_like=True):
    """That a process begins or ends to hold a lease."""

    what: Literal["holds", "ends"]
    process: int
    source: int
    key: str
    fence: int


_decoder = msgspec.json.Decoder(Report)


def add_source(url: str | None, locks: LocksSource | None) -> int:
    """Note where a decorator has its locks. Returns a number for `reported`."""
    _sources.append((url, locks))
    return len(_sources) - 1


@contextmanager
def reported(source: int, lease: Lease) -> Iterator[None]:
    """Have the parent free the lease if this process dies inside of the block."""
    watch = _watch
    if watch is None or watch.parent == os.getpid():
        yield
        return
    watch.report(Report("holds", os.getpid(), source, lease.key, lease.fence))
    try:
        yield
    finally:
        watch.report(Report("ends", os.getpid(), source, lease.key, lease.fence))


class Watch:
    """In the parent: a thread that reads reports, and waits for the end of who has sent them."""

    def __init__(self, free: Callable[[Report], None]) -> None:
        self.parent = os.getpid()
        self._free = free
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._unread = b""
        self._held: dict[int, dict[tuple[int, str, int], Report]] = {}
        self._descriptors: dict[int, int] = {}  # of processes
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._reader, selectors.EVENT_READ)
        threading.Thread(target=self._run, name="holdfast-children", daemon=True).start()

    def report(self, report: Report) -> None:
        """From a child. Never blocks: what the parent does not hear of is freed by the ttl."""
        line = msgspec.json.encode(report) + b"\n"
        if len(line) <= LONGEST_REPORT:
            with suppress(OSError):
                os.write(self._writer, line)

    # --- in the parent's thread -----------------------------------------------------------------

    def _run(self) -> None:
        while True:
            unseen = self._held.keys() - self._descriptors.keys()
            ready = self._selector.select(LOOK_EVERY_S if unseen else None)
            ended = [key.data for key, _ in ready if key.data is not None]
            ended += [process for process in unseen if not _is_running(process)]
            self._read()  # what the dead have said before they died
            for process in ended:
                self._bury(process)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while more := os.read(self._reader, 65536):
                self._unread += more
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            self._note(_decoder.decode(line))

    def _note(self, report: Report) -> None:
        held = self._held.setdefault(report.process, {})
        grant = (report.source, report.key, report.fence)
        if report.what == "ends":
            held.pop(grant, None)
            return
        held[grant] = report
        if report.process not in self._descriptors and hasattr(os, "pidfd_open"):
            try:
                opened = os.pidfd_open(report.process)
            except ProcessLookupError:
                self._bury(report.process)
            except OSError:  # an old kernel, or no descriptor left: `_run` looks for it
                pass
            else:
                self._descriptors[report.process] = opened
                self._selector.register(opened, selectors.EVENT_READ, report.process)

    def _bury(self, process: int) -> None:
        opened = self._descriptors.pop(process, None)
        if opened is not None:
            self._selector.unregister(opened)
            os.close(opened)
        for report in self._held.pop(process, {}).values():
            self._free(report)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _free_lock(app: Any, report: Report) -> None:
    url, locks = _sources[report.source]
    reason = f"its worker process {report.process} died"
    try:
        locks_for(app, url, locks).evict(report.key, fence=report.fence, reason=reason)
    except (HoldfastError, OSError) as trouble:
        key = printable(report.key)
        logger.warning(
            "Lock %s stays taken until its ttl is over, although %s: %s", key, reason, trouble
        )


def _start(sender: Any = None, **_: Any) -> None:
    global _watch
    _watch = Watch(lambda report: _free_lock(sender.app, report))


def _warn_of_lost_tasks(sender: Any = None, **_: Any) -> None:
    """Tell of tasks that would not run again after their process died, although they could."""
    tasks = sender.app.tasks.values()
    lost = sorted(
        task.name
        for task in tasks
        if task.acks_late and not task.reject_on_worker_lost and hasattr(task.run, "exclusive")
    )
    if lost:
        logger.warning(
            "If a worker process dies, its task is not run again, although it has acks_late: set "
            "reject_on_worker_lost for %s, or task_reject_on_worker_lost for all",
            ", ".join(lost),
        )


signals.worker_init.connect(_start)
signals.worker_ready.connect(_warn_of_lost_tasks)
