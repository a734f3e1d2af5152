"""One party's hold on a lease file: maintain it, release it, and notice that it is lost.

1. Every write names the version that it replaces, so nobody overwrites what they have not seen.
   If another version is there, we read it. If it has our writer id, the other party of this lease
   wrote it, and we try again. If it has not, the lease is lost, and nothing is written.
2. After a write whose reply was lost we look whether it is there: no two writes have the same
   bytes.
3. A lease that was released or lost is never maintained again. A lease that ran out and that
   nobody took is still ours: its file proves that nobody held it in between.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from functools import cached_property
from typing import Any, NoReturn, Protocol, runtime_checkable

from holdfast.dropin.mops_lock.errors import LeaseLostError
from holdfast.dropin.mops_lock.lease_file import Found, LeaseFile, open_lease_file
from holdfast.dropin.mops_lock.lease_format import Emitter, decode, is_released
from holdfast.errors import OutcomeUnknown, Unavailable

logger = logging.getLogger("holdfast")

# The other party writes a few times within `expire`: we are never beaten for long.
MOST_TRIES = 20
LONGEST_PAUSE_S = 0.05


@runtime_checkable
class LeaseAcquired(Protocol):
    """What `acquire` returns, and what the daemon maintains."""

    writer_id: str
    expire_s: float

    def maintain(self) -> None:
        """Say that the work goes on."""

    def release(self) -> None:
        """Give it back."""


class Lease:
    """A lease that was acquired, by this process or by the one that started it."""

    def __init__(
        self, file: LeaseFile, emitter: Emitter, version: Any, *, may_release: bool = True
    ) -> None:
        self.writer_id = emitter.writer_id
        self.expire_s = emitter.expire_s
        self.uri = file.uri
        self.released_elsewhere = False  # the other party gave it back, or a copy of us did
        self._lease_dir_uri = file.lease_dir_uri
        self._emitter = emitter
        self._version = version
        self._may_release = may_release
        self._why = ""  # it is not ours any more
        self._released = False
        self._file = file
        self._begin_here()

    def _begin_here(self) -> None:
        """What a copy in another process has anew."""
        self.lost = threading.Event()  # set once it is known to be somebody else's
        self._lock = threading.Lock()  # a write under way ends before the next one begins

    def __getstate__(self) -> dict[str, Any]:
        """All but what is this process's own. The folder's URI is in it as it was given, with
        the credentials that it may have."""
        own = {"lost", "_file", "_lock"}
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_here()
        if self._why:
            self.lost.set()

    @cached_property
    def _file(self) -> LeaseFile:
        """Of a copy, opened when it is needed: one that nobody uses asks nothing of anyone."""
        return open_lease_file(self._lease_dir_uri)

    def __repr__(self) -> str:
        state = "released" if self._released else "lost" if self.lost.is_set() else "held"
        return f"<Lease {self.uri!r} writer_id={self.writer_id!r} {state}>"

    def maintain(self) -> None:
        """Let it last for another `expire_s`. Raises `LeaseLostError` if it is no longer ours."""
        with self._lock:
            if self._released:
                self._why = self._why or "it was released"
            if self._why:
                self._raise_lost()
            self._write(self._emitter.held())

    def release(self) -> None:
        """Free it, if it is still ours. May be repeated; a remote's does nothing."""
        if not self._may_release:
            return
        with self._lock:
            if self._released or self._why:
                return
            try:
                self._write(self._emitter.released())
            except LeaseLostError as lost:
                logger.warning("The lease at %s was not released: %s", self.uri, lost.why)
            self._released = True

    # --- one write --------------------------------------------------------------------------

    def _write(self, body: bytes) -> None:
        version = self._version
        for tries in range(MOST_TRIES):
            written = self._try(version, body)
            if written is None:
                found = self._file.read()
                if found is not None and found.body == body:
                    written = found.version
                else:
                    version = self._check_ours(found)
            if written is not None:
                self._version = written
                return
            time.sleep(random.uniform(0, LONGEST_PAUSE_S * tries / MOST_TRIES))
        raise Unavailable(
            f"The lease at {self.uri} is being written by others all the time: try again."
        )

    def _try(self, version: Any, body: bytes) -> Any | None:
        """Returns the new version; None if the write was not carried out, or that is unknown."""
        try:
            return self._file.swap(version, body)
        except OutcomeUnknown:
            logger.debug("It is not known whether %s was written", self.uri)
            return None

    def _check_ours(self, found: Found | None) -> Any:
        """Returns the version to replace. Raises if the file is not that of this lease any more."""
        if found is None:
            self._lose("its file is gone")
        contents = decode(found.body, self.uri)
        if contents["writer_id"] != self.writer_id:
            self._lose(f"it is held by another writer, {contents['writer_id']}")
        if is_released(contents):
            self.released_elsewhere = True
            self._lose("it was released by the other party")
        return found.version

    def _lose(self, why: str) -> NoReturn:
        self._why = why
        self.lost.set()
        self._raise_lost()

    def _raise_lost(self) -> NoReturn:
        raise LeaseLostError(
            f"The lease at {self.uri} is not yours any more: {self._why}. If you are a remote, "
            f"start your orchestrator again: it will wait for the new owner's result.",
            key=self.uri,
            why=self._why,
        )
