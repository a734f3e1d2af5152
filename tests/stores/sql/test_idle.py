"""Connections that the server ended while nobody used them: the next call is none the worse."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.core.contract import Swapped
from holdfast.core.records import Record
from holdfast.errors import Misconfigured, OutcomeUnknown, Unavailable
from holdfast.stores.registry import open_store
from holdfast.stores.sql.errors import MYSQL, POSTGRES, Again, Broken, trouble
from tests.helpers import unique
from tests.stores.sql.servers import Server

pytestmark = pytest.mark.timeout(90)


def end_all(server: Server) -> None:
    """End every session but our own, as an administrator does, or a timeout for idle ones."""
    if server.is_postgres:
        server.run(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return
    others = "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()"
    for (number,) in server.run(f"{others} AND command = 'Sleep'"):
        server.run(f"KILL {number}")
    while server.run(f"{others} AND command IN ('Sleep', 'Killed')"):
        time.sleep(0.01)


def restart(server: Server) -> None:
    """The server is restarted in good order."""
    server.engine.shut_down()
    server.engine.start()


ENDS: list[Callable[[Server], None]] = [end_all, restart]


@pytest.mark.parametrize("end", ENDS)
def test_a_write_on_a_connection_that_was_ended(own_server: Server, end: Any) -> None:
    """It is seen before anything is sent, so the outcome is known."""
    store = own_server.open(query="wakeup=poll")
    key = unique()
    first = store.swap(key, None, Record(1))
    assert isinstance(first, Swapped)
    end(own_server)
    second = store.swap(key, first.version, Record(2))
    assert isinstance(second, Swapped)


@pytest.mark.parametrize("end", ENDS)
def test_a_write_of_asyncio_on_a_connection_that_was_ended(own_server: Server, end: Any) -> None:
    """The same on an event loop."""

    async def run() -> None:
        store = open_store(own_server.url(query="wakeup=poll")).to_async()
        key = unique()
        first = await store.swap(key, None, Record(1))
        assert isinstance(first, Swapped)
        await asyncio.to_thread(end, own_server)
        assert isinstance(await store.swap(key, first.version, Record(2)), Swapped)
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("end", ENDS)
def test_every_call_after_an_end(own_server: Server, end: Any) -> None:
    """Whatever comes next works at the first try."""
    key = unique()
    with holdfast.connect(own_server.url(), ttl=60) as locks:
        lease = locks.acquire(key)
        for call in (
            lambda: locks.show(key),
            lambda: list(locks.list()),
            lease.renew,
            lambda: locks.join(lease.share()),
            lease.release,
            lambda: locks.acquire(key, timeout=0).hand_over(),
            lambda: locks.evict(key),
            lambda: locks.acquire_all([key, f"{key}/2"], timeout=0),
        ):
            end_all(own_server) if end is end_all else restart(own_server)
            call()


def test_every_call_of_asyncio_after_an_end(own_server: Server) -> None:
    """The same on an event loop."""

    async def run() -> None:
        key = unique()
        async with aio.connect(own_server.url(), ttl=60) as locks:
            lease = await locks.acquire(key)
            await asyncio.to_thread(end_all, own_server)
            await locks.show(key)
            await asyncio.to_thread(end_all, own_server)
            await lease.renew()
            await asyncio.to_thread(end_all, own_server)
            assert await lease.release()
            await asyncio.to_thread(end_all, own_server)
            assert await locks.try_acquire(key) is not None

    asyncio.run(run())


def test_wait_timeout(own_server: Server) -> None:
    """A session that MySQL ended for having been idle too long."""
    if own_server.is_postgres:
        own_server.run("ALTER SYSTEM SET idle_session_timeout = '1s'")
        own_server.run("SELECT pg_reload_conf()")
    else:
        own_server.run("SET GLOBAL wait_timeout = 1")
    store, key = own_server.open(query="wakeup=poll"), unique()
    first = store.swap(key, None, Record(1))
    assert isinstance(first, Swapped)
    time.sleep(2.5)
    assert isinstance(store.swap(key, first.version, Record(2)), Swapped)


# --- the table of errors ----------------------------------------------------------------------


class Error(Exception):
    """The base of a driver's errors, by PEP 249."""


class DatabaseError(Error):
    """About the database."""


class OperationalError(DatabaseError):
    """About its operation."""


class InternalError(DatabaseError):
    """What a driver raises about an answer that makes no sense."""


class ProgrammingError(DatabaseError):
    """What a driver raises about a statement that makes no sense."""

    sqlstate: str | None = None


def with_code(code: str | int) -> Exception:
    """An error that the server reported."""
    error = OperationalError(code, "said the server")
    error.sqlstate = code  # type: ignore[attr-defined]
    return error


LINES: list[tuple[Exception, type, type, type]] = [
    (ConnectionResetError(104, "reset"), Unavailable, Broken, OutcomeUnknown),
    (EOFError("closed"), Unavailable, Broken, OutcomeUnknown),
    (TimeoutError("late"), Unavailable, Broken, OutcomeUnknown),
    (OperationalError("no code"), Unavailable, Broken, OutcomeUnknown),
    (InternalError("Packet sequence number wrong"), Unavailable, Broken, OutcomeUnknown),
    (ValueError("cannot read that"), Misconfigured, Misconfigured, OutcomeUnknown),
    (AssertionError("cannot read that"), Unavailable, Misconfigured, OutcomeUnknown),
    (ProgrammingError("no such placeholder"), Misconfigured, Misconfigured, Misconfigured),
]


@pytest.mark.parametrize("diagnosis", [POSTGRES, MYSQL])
@pytest.mark.parametrize("line", LINES, ids=[repr(line[0]) for line in LINES])
def test_what_the_driver_says(diagnosis: Any, line: tuple[Any, ...]) -> None:
    """What has no code of the server's is unknown of a write, unless it cannot have left."""
    error, *kinds = line
    for doing, kind in zip(("connecting", "reading", "writing"), kinds, strict=True):
        assert type(trouble(error, diagnosis, doing, "here")[0]) is kind, doing  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("diagnosis", "code"), [(POSTGRES, "57P01"), (POSTGRES, "57P05"), (MYSQL, 1053), (MYSQL, 1180)]
)
def test_a_session_that_ended(diagnosis: Any, code: Any) -> None:
    """What it was writing then is unknown; nothing else is."""
    for doing, kind in (
        ("connecting", Unavailable), ("reading", Broken), ("writing", OutcomeUnknown),
    ):  # fmt: skip
        failure, ended = trouble(with_code(code), diagnosis, doing, "here")  # type: ignore[arg-type]
        assert (type(failure), ended) == (kind, True)


def test_a_code_with_which_the_connection_went() -> None:
    """The server said why it would not write, and was gone: it may not have been about ours."""
    error = with_code("53200")
    assert type(trouble(error, POSTGRES, "writing", "here")[0]) is Unavailable
    assert type(trouble(error, POSTGRES, "writing", "here", gone=True)[0]) is OutcomeUnknown


def test_a_session_that_had_ended_before() -> None:
    """MySQL 8 says that it was idle for too long: the statement was not even read."""
    failure, ended = trouble(with_code(4031), MYSQL, "writing", "here", gone=True)
    assert (type(failure), ended) == (Again, True)
