"""Tokens, tickets and passwords are shown nowhere."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest
from rich.pretty import pretty_repr

import holdfast
from holdfast import BadURL, Busy, Locks
from holdfast.core import commands
from holdfast.core.records import Holder, Record, Waiter
from holdfast.core.tickets import Ticket
from holdfast.stores.url import parse
from holdfast.stores.url import shown as display
from tests.helpers import memory_locks

SECRET = "s3cr3t"


def shown(thing: Any) -> str:
    """All ways in which something is shown."""
    return f"{thing!r} {thing} {pretty_repr(thing)}"


@pytest.mark.parametrize(
    "thing",
    [
        Holder(SECRET, 1, "o", "exclusive", 1, 1, 1, "b"),
        Waiter(SECRET, "o", "exclusive", 1, 1, 1, "b"),
        Record(1, (Holder(SECRET, 1, "o", "exclusive", 1, 1, 1, "b"),), (), 1, SECRET),
        Ticket("k", SECRET, 1, 1),
        commands.Claim(SECRET, "o", "exclusive", 1),
        commands.Renew(SECRET, Holder(SECRET, 1, "o", "exclusive", 1, 1, 1, "b")),
        commands.Free(SECRET),
        commands.Offer(SECRET, SECRET, 1),
        commands.Take(SECRET, SECRET, "o", 1),
        commands.Decision(commands.Freed(), Record(freed=SECRET), (SECRET,)),
        parse(f"redis://user:{SECRET}@host/0?password={SECRET}"),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_what_has_a_secret_does_not_show_it(thing: Any) -> None:
    """Neither `repr`, nor `str`, nor rich's pretty printer (and so its tracebacks) shows it."""
    assert SECRET not in shown(thing)


def test_lease_and_client() -> None:
    """A lease, a group of leases and a client show no token."""
    with memory_locks() as locks, locks.acquire_all(["a", "b"]) as leases:
        for lease in leases:
            for thing in (lease, leases, locks, lease.hold):
                assert lease.hold.token not in shown(thing)
                assert lease.share() not in shown(thing)


def all_text(thing: Any, depth: int = 6) -> str:
    """Everything that can be found in an object, by whatever attribute."""
    if depth == 0 or isinstance(thing, (str, int, float, bytes, type(None), type)):
        return str(thing)
    if isinstance(thing, dict):
        return " ".join(all_text(x, depth - 1) for pair in thing.items() for x in pair)
    if isinstance(thing, (tuple, list)):
        return " ".join(all_text(x, depth - 1) for x in thing)
    fields = getattr(thing, "__struct_fields__", None)
    if fields is not None:
        return " ".join(all_text(getattr(thing, name), depth - 1) for name in fields)
    return repr(thing)


class Everything(logging.Handler):
    """Keeps every log record."""

    def __init__(self) -> None:
        super().__init__(1)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.records.append(record)


def a_full_life(locks: Locks, tokens: set[str]) -> list[Exception]:
    """Use everything there is; the errors on the way."""
    errors: list[Exception] = []
    lease = locks.acquire("k", owner="first")
    tokens |= {lease.hold.token, lease.share()}
    for fair in (True, False):
        try:
            locks.acquire("k", timeout=0.05, fair=fair, owner="second")
        except Busy as busy:
            errors.append(busy)
    ticket = lease.hand_over()
    second = locks.take(ticket)
    tokens |= {ticket, second.hold.token}
    for text in (ticket, ticket[:-2], second.share()):
        try:
            locks.take(text)
        except holdfast.HoldfastError as exc:
            errors.append(exc)
    locks.evict("k")
    try:
        second.renew()
    except holdfast.LeaseLost as lost:
        errors.append(lost)
    third = locks.acquire("k", owner="third")
    tokens.add(third.hold.token)
    third.release()
    return errors


def test_events_logs_and_errors_carry_no_token() -> None:
    """Nothing that is told to anybody has a token in it, not even out of sight."""
    told: list[Any] = []
    tokens: set[str] = set()
    handler = Everything()
    logger = logging.getLogger("holdfast")
    logger.addHandler(handler)
    level, logger.level = logger.level, 1
    try:
        with memory_locks(on_event=told.append) as locks:
            errors = a_full_life(locks, tokens)
    finally:
        logger.level = level
        logger.removeHandler(handler)
    assert len(errors) == 6
    assert {type(event).__name__ for event in told} >= {
        "Acquired", "Waiting", "Released", "Lost", "Evicted",
    }  # fmt: skip
    said = [all_text(event) + repr(event) for event in told]
    said += [all_text(vars(record)) + record.getMessage() for record in handler.records]
    for error in errors:
        said.append("".join(traceback.format_exception(error)) + all_text(vars(error)))
    for text in said:
        assert not [token for token in tokens if token in text], text


URLS = [
    f"nosuch://user:{SECRET}@host/db",
    f"nosuch://user:a@{SECRET}@host/db",
    f"nosuch://:{SECRET}/{SECRET}@host:1/db",
    f"sqlite://user:{SECRET}@/path",
    f"sqlite:///tmp/x.db?password={SECRET}",
    f"memory://user:{SECRET}@host/path",
    f"memory://name?token={SECRET}",
    f"no_scheme:{SECRET}@host",
    f"//user:{SECRET}@host",
    f"user:{SECRET}@host",
    f"nosuch://host:{SECRET}/db",
    f"memory://user:{SECRET}@[::1/x",
]


@pytest.mark.parametrize(
    "url",
    [
        *URLS,
        f"redis:/user:{SECRET}@host/0",
        f"redis:///user:{SECRET}@host/0",
        f"redis:///:{SECRET}@host/0",
        f":{SECRET}@host",
        f"host?password={SECRET}",
    ],
)
def test_what_is_shown_of_a_url(url: str) -> None:
    """Whatever was given for one, and be it none, as `holdfast doctor` shows it."""
    if url != f"nosuch://host:{SECRET}/db":  # that is a host and its port
        assert SECRET not in display(url)
    assert display("sqlite:///home/me@work/locks.db") == "sqlite:///home/me@work/locks.db"
    assert display("redis://me@host/0") == "redis://***@host/0"


@pytest.mark.parametrize("url", URLS)
def test_passwords_in_urls(url: str) -> None:
    """A URL that is refused is shown without its secrets, causes and all."""
    with pytest.raises(BadURL) as error:
        holdfast.connect(url)
    assert SECRET not in "".join(traceback.format_exception(error.value)[-1:])
    chain: BaseException | None = error.value
    while chain is not None:
        assert SECRET not in str(chain)
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
