"""Load, swap, scan and wait as requests to a blob store.

The functions are generators with the suffix `_calls`: they yield requests (see `requests`), get
the answers, and return the result. The blocking and the asyncio transport run them.

`Conditional` is for services that compare before they write:

    load     GET
    swap     PUT if absent, or if the ETag (GCS: generation) is still that; if not, GET
    wait     GET unless the ETag is still that, again and again

When a write is refused, the object that is there may be our own: a layer below us may have sent
the write twice. The nonce in the body tells. `service_clock` explains how the time is known.

`LastWriter` is for services that do not compare. It reads, writes, waits until the writes of all
clients that had read the same must have arrived, and reads again to see whose write was the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from msgspec.structs import replace

from holdfast.core.contract import Conflict, Entry, Interval, Page, Swapped, Version
from holdfast.core.records import SECOND, Micros, Record
from holdfast.errors import HoldfastError, Misconfigured, OutcomeUnknown, Unavailable
from holdfast.runtime import clock
from holdfast.stores.base import Outcome
from holdfast.stores.blob.codec import (
    expiries_from,
    label_of,
    new_nonce,
    pack,
    parties_of,
    unpack,
    with_expiries,
)
from holdfast.stores.blob.names import CLOCK, key_of, name_of, start_of
from holdfast.stores.blob.own_writes import OwnWrites
from holdfast.stores.blob.requests import (
    Answer,
    Calls,
    Delete,
    Found,
    Get,
    Head,
    Missing,
    Names,
    Pause,
    Put,
    Several,
    Unchanged,
    Written,
)
from holdfast.stores.blob.service_clock import ServiceClock
from holdfast.stores.waiting.handles import is_taken
from holdfast.stores.waiting.pace import pause_s

# Where we may not write the object that the clock is read from, we do not try again for this long.
TRY_CLOCK_AGAIN: Micros = 60 * SECOND
# How long `LastWriter` waits before it reads again: at least this, and at least MARGIN times the
# slowest request of late.
SHORTEST_MARGIN: Micros = 50_000
MARGIN = 4


class Conditional:
    """The protocol for a service that compares."""

    def __init__(self, service: ServiceClock, *, errors_tell_time: bool = False) -> None:
        self.clock = service
        self._errors_tell_time = errors_tell_time
        self._no_clock_until: Micros = 0
        self._own_writes = OwnWrites()

    # --- load -------------------------------------------------------------------------------

    def load_calls(self, key: str) -> Calls[Entry]:
        """One request; two more to read the clock, if it may decide whether somebody's lease has
        run out and was not read lately."""
        sent = clock.monotonic()
        answer: Answer = yield Get(name_of(key))
        return (yield from self._entry_calls(key, answer, sent))

    def _entry_calls(self, key: str, answer: Answer, sent: Micros) -> Calls[Entry]:
        if isinstance(answer, Missing):
            self._learn_from(answer, sent)
        entry = self._entry(key, answer)
        # The time decides who has run out, and where the fence of a new record starts.
        if entry.version is None or parties_of(entry.record):
            now = yield from self._now_calls()
        else:
            now = self.clock.now()
        return replace(entry, now=now)

    def _entry(self, key: str, answer: Answer) -> Entry:
        """Returns what an answer shows, without the service's time."""
        if not isinstance(answer, Found):
            return Entry()
        version = self._version(answer)
        entry = unpack(key, answer.body, version, None)
        written = self.clock.precision.interval(answer.modified)
        if written is None:
            return entry
        when = self._own_writes.when(key, version)
        if when is not None:
            self.clock.learn(written, *when)
        record = with_expiries(entry.record, expiries_from(entry.record, written))
        return replace(entry, record=record, reached=written.earliest)

    def _version(self, found: Found) -> Version:
        return found.version

    # --- the time -----------------------------------------------------------------------------

    def _now_calls(self) -> Calls[Interval | None]:
        """Returns the service's time; None if it does not tell."""
        now = self.clock.now()
        if now is None and clock.monotonic() >= self._no_clock_until:
            try:
                yield from self._probe_calls()
            except Misconfigured:  # a client that may only read does without
                self._no_clock_until = clock.monotonic() + TRY_CLOCK_AGAIN
            except OutcomeUnknown as trouble:  # the caller only wanted to read
                raise Unavailable(str(trouble)) from trouble.__cause__
            now = self.clock.now()
        return now

    def _probe_calls(self) -> Calls[None]:
        """Read the clock: write an object, and look at its time."""
        sent = clock.monotonic()
        if self._errors_tell_time:
            answer: Answer = yield Get(CLOCK)
            if self._learn_from(answer, sent):
                return
        yield Put(CLOCK, b"Written to read the clock of this service.\n", anyway=True)
        answer = yield Head(CLOCK)
        if isinstance(answer, Found):
            shown = self.clock.precision.interval(answer.modified)
            if shown is not None:
                self.clock.learn(shown, sent, clock.monotonic())

    def _learn_from(self, answer: Answer, sent: Micros) -> bool:
        if not isinstance(answer, Missing) or answer.time is None:
            return False
        self.clock.learn(self.clock.precision.exact(answer.time), sent, clock.monotonic())
        return True

    # --- swap -------------------------------------------------------------------------------

    def swap_calls(self, key: str, version: Version, record: Record | None) -> Calls[Outcome]:
        """One request, if the condition is met."""
        if record is None and version is None:
            return (yield from self._absent_calls(key))
        name, nonce, only = name_of(key), new_nonce(), version
        written = record
        if record is not None:
            written = yield from self._settled_calls(key, version, record)
        while written is not None or record is None:
            sent = clock.monotonic()
            answer: Answer = yield Put(name, pack(key, nonce, written), only)
            if isinstance(answer, Written):
                return self._done(key, record, answer.version, sent)
            try:
                found: Answer = yield Get(name)
            except Unavailable as trouble:  # the object that is there may be ours
                raise OutcomeUnknown(str(trouble)) from trouble.__cause__
            label = label_of(found.body) if isinstance(found, Found) else None
            if isinstance(found, Found) and label is not None and label.key == key:
                if label.write == nonce:  # sent twice, and carried out the first time
                    return self._done(key, record, found.version, sent)
                if version is None and label.dropped:
                    only = found.version
                    continue
            return Conflict((yield from self._entry_calls(key, found, sent)))
        return Conflict((yield from self.load_calls(key)))

    def _absent_calls(self, key: str) -> Calls[Outcome]:
        entry = yield from self.load_calls(key)
        return Swapped(None, entry.now) if entry.version is None else Conflict(entry)

    def _settled_calls(self, key: str, version: Version, record: Record) -> Calls[Record | None]:
        """Returns the record with the expiries of the parties that an earlier write of ours left to
        the object's time, which this write changes. None: the object has changed meanwhile."""
        if self._own_writes.left_open(key, version, record):
            answer: Answer = yield Head(name_of(key))
            if not isinstance(answer, Found) or answer.version != version:
                return None
            written = self.clock.precision.interval(answer.modified)
            if written is not None:
                self._own_writes.close(key, version, expiries_from(record, written))
        return with_expiries(record, self._own_writes.expiries(key, version))

    def _done(self, key: str, record: Record | None, version: Version, sent: Micros) -> Swapped:
        if record is None:
            self._own_writes.forget(key)
            return Swapped(None, self.clock.now())
        self._own_writes.wrote(key, version, record, sent, clock.monotonic())
        return Swapped(version, self.clock.now())

    # --- scan -------------------------------------------------------------------------------

    def scan_calls(self, prefix: str, cursor: str | None, limit: int) -> Calls[Page]:
        """A listing, and a GET for each record in it."""
        names: list[str] = yield Names(start_of(prefix), cursor, limit)
        answers: Sequence[Answer] = yield Several(tuple(Get(name) for name in names))
        now = (yield from self._now_calls()) if names else self.clock.now()
        entries = []
        for name, answer in zip(names, answers, strict=True):
            key = _key_in(name, answer)
            if key is not None and key.startswith(prefix):
                entry = self._entry(key, answer)
                if entry.version is not None:
                    entries.append((key, replace(entry, now=now)))
        return Page(tuple(entries), names[-1] if len(names) == limit else None)

    # --- wait -------------------------------------------------------------------------------

    def wait_calls(
        self, key: str, version: Version, token: str, at_most: Micros
    ) -> Calls[Entry | None]:
        """Look again and again, less and less often. Returns what was found."""
        started = clock.monotonic()
        ends_at = started + at_most
        first = self._own_writes.waiting_since(key, token, started)
        took = 0
        while (left := ends_at - (now := clock.monotonic())) > 0:
            nap = round(pause_s((now - first) / SECOND, took / SECOND) * SECOND)
            if (yield Pause(min(nap, left))) or nap >= left:
                return None
            sent = clock.monotonic()
            try:
                answer: Answer = yield Get(name_of(key), self._unless(version))
                took = clock.monotonic() - sent
                if isinstance(answer, Unchanged):
                    continue
                entry = self._entry(key, answer)
                if entry.version != version and not is_taken(entry):
                    return (yield from self._entry_calls(key, answer, sent))
                version = entry.version
            except HoldfastError:
                return None  # the caller looks for itself, and meets the same error
        return None

    def _unless(self, version: Version) -> Version:
        return version


class LastWriter(Conditional):
    """The protocol for a service that does not compare: best effort, and no more."""

    _slowest: Micros = 0

    def _version(self, found: Found) -> Version:
        label = label_of(found.body)
        return sha256(found.body).hexdigest() if label is None else label.write

    def _unless(self, version: Version) -> Version:
        return None

    def swap_calls(self, key: str, version: Version, record: Record | None) -> Calls[Outcome]:
        """Read and compare, write, wait, and read whose write was the last."""
        name, nonce, sent = name_of(key), new_nonce(), clock.monotonic()
        before: Answer = yield Get(name)
        self._measure(sent)
        if self._entry(key, before).version != version:
            return Conflict((yield from self._entry_calls(key, before, sent)))
        if record is None:
            yield Delete(name)
            self._own_writes.forget(key)
            return Swapped(None, self.clock.now())
        if isinstance(before, Found):
            written = self.clock.precision.interval(before.modified)
            if written is not None and self._own_writes.left_open(key, version, record):
                self._own_writes.close(key, version, expiries_from(record, written))
        body = pack(key, nonce, with_expiries(record, self._own_writes.expiries(key, version)))
        sent = clock.monotonic()
        yield Put(name, body, anyway=True)
        self._measure(sent)
        yield Pause(max(SHORTEST_MARGIN, MARGIN * self._slowest))
        after: Answer = yield Get(name)
        if isinstance(after, Found) and self._version(after) == nonce:
            return self._done(key, record, nonce, sent)
        return Conflict((yield from self._entry_calls(key, after, sent)))

    def _measure(self, sent: Micros) -> None:
        took = clock.monotonic() - sent
        self._slowest = max(took, self._slowest - self._slowest // 10)


def _key_in(name: str, answer: Answer) -> str | None:
    label = label_of(answer.body) if isinstance(answer, Found) else None
    if label is not None and name_of(label.key) == name:
        return label.key
    return key_of(name)


def check_calls() -> Calls[None]:
    """The smallest request that needs the bucket."""
    yield Names("", None, 1)
