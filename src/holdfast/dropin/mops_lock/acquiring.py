"""Acquire a lease, beside workers with this module and workers with mops.

A worker with mops reads the file. If the lease is free or has run out, it writes its own name,
waits for twice as long as that took, and reads again whether its name is still there: the last
writer wins. We replace only what we have read, so of many workers with this module that find the
lease free one gets it, at once. But a worker with mops that read the file before we wrote will
still overwrite it. So we wait as mops does and read again, unless the caller says that nobody uses
mops (`beside_mops=False`).

One thing neither can prevent: a worker with mops that stands still between its read and its write,
for longer than everybody waits, takes a lease that is held. The holder learns that when it next
maintains.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

from holdfast.dropin.mops_lock.lease import Lease
from holdfast.dropin.mops_lock.lease_file import Found, LeaseFile, open_lease_file
from holdfast.dropin.mops_lock.lease_format import (
    Emitter,
    LeaseContents,
    decode,
    expires_at,
    is_released,
    utc_now,
)
from holdfast.errors import BadOption, CorruptRecord, HoldfastError, OutcomeUnknown

logger = logging.getLogger("holdfast")

FIRST_LOOK_S, LOOK_AGAIN_S = 0.02, 0.2  # the first and the longest pause between two looks
SETTLE_TIMES = 2  # as in mops: we wait this many times as long as our read and write took
EMPTY_FOR_S = 2.0  # how long a file may be empty, because somebody is about to write it


def acquire(
    lease_dir_uri: str,
    *,
    expire: timedelta = timedelta(seconds=30),
    acquire_margin: timedelta = timedelta(0),
    debug: bool = True,
    block: timedelta | None = timedelta(0),
    beside_mops: bool = True,
) -> Lease | None:
    """Acquire the lease in this folder. Returns None if it was not free within `block`.

    expire          how long the lease lasts after it was last maintained
    acquire_margin  how long to wait, at least, for a worker with mops that may overwrite ours
    debug           log what happens, at the level DEBUG
    block           how long to wait for the lease; None: as long as it takes
    beside_mops     False: nobody uses mops here, so do not wait for its workers
    """
    margin_s, expire_s = acquire_margin.total_seconds(), expire.total_seconds()
    if margin_s < 0:
        raise BadOption(f"acquire_margin cannot be negative, as {margin_s} s is.")
    if expire_s <= 0 or margin_s * 2 > expire_s:
        raise BadOption(
            f"acquire_margin ({margin_s} s) must be at most half of expire ({expire_s} s), "
            f"and expire above 0."
        )
    ends_at = None if block is None else time.monotonic() + block.total_seconds()
    file = open_lease_file(lease_dir_uri)
    claim = _Claim(file, expire_s, margin_s, beside_mops or not file.compares, debug)
    while True:
        lease = claim.try_once()
        if lease is not None:
            return lease
        if ends_at is not None and time.monotonic() >= ends_at:
            return None
        time.sleep(claim.pause_s)


class _Claim:
    """One call of `acquire`."""

    def __init__(
        self, file: LeaseFile, expire_s: float, margin_s: float, settles: bool, debug: bool
    ) -> None:
        self._file = file
        self._margin_s = margin_s
        self._settles = settles  # whether somebody may overwrite what we wrote
        self._debug = debug
        self._emitter = Emitter(uuid4().hex, expire_s)
        self._empty_since: float | None = None
        self._warned = False
        self._patience_s = FIRST_LOOK_S
        self.pause_s = 0.0

    def try_once(self) -> Lease | None:
        """Read the file, and take the lease if it is free. Returns None if not: try again after
        `pause_s`."""
        began = time.monotonic()
        found = self._file.read()
        if found is not None and not self._is_free(found):
            return None
        self.pause_s = 0.0  # if another worker is faster, the next read shows it
        body = self._emitter.held()
        try:
            version = self._swap(found, body)
            if version is None or not self._stays(body, began):
                self._say("lost the race for %s")
                return None
        except BaseException:
            self._take_back(body)
            raise
        self._say("acquired %s")
        return Lease(self._file, self._emitter, version)

    def _swap(self, found: Found | None, body: bytes) -> Any | None:
        """Returns the version of what we wrote, or None. After a refusal we read the file: a layer
        below us may have sent the write twice."""
        version = None
        with suppress(OutcomeUnknown):
            version = self._file.swap(None if found is None else found.version, body)
        return self._version_of(body) if version is None else version

    def _stays(self, body: bytes, began: float) -> bool:
        """Wait whether a worker with mops overwrites what we wrote. Returns False if one did."""
        if not self._settles:
            return True
        took = time.monotonic() - began
        time.sleep(max(self._margin_s, SETTLE_TIMES * took))
        return self._version_of(body) is not None

    def _version_of(self, body: bytes) -> Any | None:
        found = self._file.read()
        return found.version if found is not None and found.body == body else None

    def _take_back(self, body: bytes) -> None:
        """Release a lease that the caller will not get, after an interrupt or an error."""
        try:
            version = self._version_of(body)
            if version is not None:
                Lease(self._file, self._emitter, version).release()
        except HoldfastError as trouble:
            logger.warning("A lease may stay at %s until it runs out: %s", self._file.uri, trouble)

    # --- is it free -------------------------------------------------------------------------

    def _is_free(self, found: Found) -> bool:
        if not found.body.strip():
            self._wait_for_contents()
            return False
        self._empty_since = None
        contents = decode(found.body, self._file.uri)
        # Our own name is there if an earlier write of ours has arrived late.
        if is_released(contents) or contents["writer_id"] == self._emitter.writer_id:
            return True
        ends = expires_at(contents, self._file.uri)
        if ends is None:
            return True
        self._warn_of_another_expire(contents)
        rest_s = (ends - utc_now()).total_seconds()
        self.pause_s = min(self._patience_s, max(0.001, rest_s))
        self._patience_s = min(1.5 * self._patience_s, LOOK_AGAIN_S)
        return rest_s < 0

    def _wait_for_contents(self) -> None:
        now = time.monotonic()
        self._empty_since = now if self._empty_since is None else self._empty_since
        self.pause_s = FIRST_LOOK_S
        if now - self._empty_since > EMPTY_FOR_S:
            uri = self._file.uri
            raise CorruptRecord(f"{uri} is empty. It was left alone: remove it.", key=uri)

    def _warn_of_another_expire(self, contents: LeaseContents) -> None:
        theirs, ours = float(contents["expire_s"]), self._emitter.expire_s
        if round(theirs, 4) != round(ours, 4) and not self._warned:
            self._warned = True
            logger.warning(
                "The lease at %s expires after %g s, but expire is %g s here: give all parties "
                "the same expire, because mops goes by its own",
                self._file.uri, theirs, ours,
            )  # fmt: skip

    def _say(self, what: str) -> None:
        if self._debug:
            logger.debug(f"Lease: {what}", self._file.uri)
