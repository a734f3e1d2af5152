"""Tracebacks with local variables, as rich and others show them, have no secrets in them."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.traceback import Traceback

import holdfast
from holdfast import BadTicket, BadURL, Busy, HoldfastError, Locks, Unavailable, aio
from holdfast.core.discreet import Secret, SecretBytes, hidden
from holdfast.runtime import frames
from holdfast.stores.base import Store
from tests.conformance.blob_targets import s3_url
from tests.conformance.dynamodb_targets import TABLE
from tests.engines.base import Engine, require
from tests.engines.dynamodb import session
from tests.engines.mariadb import MariaDB
from tests.engines.moto import Moto
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisServer
from tests.engines.s3 import S3Server
from tests.helpers import faulty_locks, memory_locks, short_calls, unique

PASSWORD = "s3cr3t"


def shown(error: BaseException) -> str:
    """All that a traceback with local variables could show, but for the frames of this file."""
    trace = Traceback.extract(
        type(error), error, error.__traceback__, show_locals=True,
        locals_max_length=1000, locals_max_string=100_000, locals_hide_dunder=False,
    )  # fmt: skip
    parts = [str(stack.exc_value) for stack in trace.stacks]
    for stack in trace.stacks:
        for frame in stack.frames:
            if frame.filename == __file__:
                continue
            nodes = (frame.locals or {}).items()
            parts += [f"{frame.name}: {name} = {node.render(10**6)}" for name, node in nodes]
    return "\n".join(parts)


def error_of(call: Callable[[], Any]) -> BaseException:
    """What a call raises."""
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


# --- tickets ------------------------------------------------------------------------------------


def bad_tickets(share: str, hand_over: str) -> list[tuple[str, Any]]:
    """Which call is given what, and refuses it."""
    return [
        ("join", hand_over),
        ("join", share[:-2]),
        ("join", f" {share}x "),
        ("join", share.encode()),
        ("join", f"no ticket {share}"),
        ("take", share),
        ("take", hand_over[:-4]),
        ("take", hand_over.encode()),
    ]


def test_tickets_that_are_refused() -> None:
    """Neither the ticket nor what is in it."""
    with memory_locks() as locks:
        lease, given = locks.acquire("k"), locks.acquire("other")
        secrets = [lease.hold.token]
        share, hand_over = lease.share(release=True), given.hand_over()
        for name, ticket in bad_tickets(share, hand_over):
            error = error_of(lambda name=name, ticket=ticket: getattr(locks, name)(ticket))  # type: ignore[misc]
            assert isinstance(error, BadTicket)
            text = shown(error)
            assert not [part for part in (*secrets, share[10:40], hand_over[10:40]) if part in text]


def test_tickets_that_are_refused_by_the_other_face() -> None:
    """The same with asyncio."""
    asyncio.run(use_bad_tickets())


async def use_bad_tickets() -> None:
    """Both ways to use a ticket."""
    locks = aio.connect(f"memory://{unique()}")
    lease, given = await locks.acquire("k"), await locks.acquire("other")
    secrets = [lease.hold.token]
    share, hand_over = lease.share(release=True), await given.hand_over()
    for name, ticket in bad_tickets(share, hand_over):
        try:
            await getattr(locks, name)(ticket)
        except BadTicket as error:
            text = shown(error)
            assert not [part for part in (*secrets, share[10:40], hand_over[10:40]) if part in text]
        else:
            raise AssertionError("it was taken")
    await locks.close()


def test_a_ticket_for_the_caller_is_plain_text() -> None:
    """Who asks for a ticket can see it."""
    with memory_locks() as locks:
        ticket, other = locks.acquire("k").share(), locks.acquire("other").hand_over()
        assert type(ticket) is type(other) is str
        assert ticket in repr(ticket)


# --- a store that fails -------------------------------------------------------------------------


@contextmanager
def sqlite(folder: Path) -> Iterator[tuple[Callable[[], Store], Callable[[Any], None]]]:
    """A file without its table."""

    def break_it(store: Any) -> None:
        store._connection.run("DROP TABLE holdfast_locks")

    yield lambda: holdfast.stores.registry.open_store(f"sqlite://{folder}/locks.db"), break_it


@contextmanager
def directory(folder: Path) -> Iterator[tuple[Callable[[], Store], Callable[[Any], None]]]:
    """A directory that is gone."""

    def break_it(store: Any) -> None:
        shutil.rmtree(folder / "locks")

    yield lambda: holdfast.stores.registry.open_store(f"file://{folder}/locks"), break_it


def served_by(kind: type[Engine], url: Callable[[Any], Any]) -> Any:
    """A server that is killed."""

    @contextmanager
    def serve(folder: Path) -> Iterator[tuple[Callable[[], Store], Callable[[Any], None]]]:
        require(kind)
        with kind() as server:

            def open_store() -> Store:
                store: Store = url(server)
                store.setup()
                return store

            yield open_store, lambda store: server.kill()

    return serve


def of_url(url: Any, **options: Any) -> Store:
    """The store at a URL."""
    return holdfast.stores.registry.open_store(url, **options)


def dynamodb(server: Moto) -> Store:
    """A table of moto's."""
    return of_url(session(), table=TABLE, endpoint_url=server.endpoint)


def s3(server: S3Server) -> Store:
    """A bucket of moto's."""
    return of_url(s3_url(server))


STORES: dict[str, Any] = {
    "sqlite": sqlite,
    "file": directory,
    "redis": served_by(RedisServer, lambda server: of_url(server.url)),
    "postgresql": served_by(PostgreSQL, lambda server: of_url(server.url())),
    "mysql": served_by(MariaDB, lambda server: of_url(server.url())),
    "dynamodb": served_by(Moto, dynamodb),
    "s3": served_by(S3Server, s3),
}


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All tokens that are drawn from here on; and no call goes on trying for long."""
    drawn: list[str] = []

    def draw(size: int) -> bytes:
        raw = os.urandom(size)
        if size >= 16:
            drawn.append(raw[:16].hex())
        return raw

    monkeypatch.setattr("holdfast.api.requests.urandom", draw)
    short_calls(monkeypatch, 200_000)
    monkeypatch.setattr("holdfast.runtime.cleaning.CLEAN_UP_FOR", 200_000)
    return drawn


def calls_of(locks: Any, leases: list[Any], share: str, ticket: str) -> dict[str, Any]:
    """Everything that asks the store for something."""
    return {
        "acquire": lambda: locks.acquire("new", timeout=0),
        "acquire again": lambda: locks.acquire("again", timeout=0),
        "acquire_all": lambda: locks.acquire_all(["a", "b"], timeout=0),
        "join": lambda: locks.join(share),
        "take": lambda: locks.take(ticket),
        "renew": leases[0].renew,
        "release": leases[0].release,
        "hand_over": leases[1].hand_over,
        "evict": lambda: locks.evict("k"),
        "show": lambda: locks.show("k"),
        "setup": locks.setup,
    }


@pytest.mark.parametrize("kind", STORES)
def test_a_store_that_fails(kind: str, tmp_path: Path, tokens: list[str]) -> None:
    """No token and no ticket is in any frame, whatever is asked of a broken store."""
    failed = set()
    with STORES[kind](tmp_path) as (open_store, break_it), Locks(open_store()) as locks:
        locks._client.requests.store_patience = 100_000
        leases = [locks.acquire(key, ttl=60) for key in ("k", "second")]
        locks.acquire("again").release()
        share, ticket = leases[0].share(release=True), locks.acquire("third").hand_over()
        break_it(locks._client.store)
        for name, call in calls_of(locks, leases, share, ticket).items():
            try:
                call()
            except HoldfastError as error:
                failed.add(name)
                text = shown(error)
                secrets = [*tokens, share[10:40], ticket[10:40]]
                assert not [secret for secret in secrets if secret in text], (name, text)
    assert failed >= {"acquire", "join", "take", "renew", "release", "hand_over"}


@pytest.mark.parametrize("kind", STORES)
def test_a_store_that_fails_the_other_face(kind: str, tmp_path: Path, tokens: list[str]) -> None:
    """The same with asyncio."""
    asyncio.run(use_a_store_that_fails(kind, tmp_path, tokens))


async def use_a_store_that_fails(kind: str, tmp_path: Path, tokens: list[str]) -> None:
    """Ask everything of it."""
    failed = set()
    with STORES[kind](tmp_path) as (open_store, break_it):
        locks = aio.Locks(open_store())
        locks._client.requests.store_patience = 100_000
        leases = [await locks.acquire(key, ttl=60) for key in ("k", "second")]
        await (await locks.acquire("again")).release()
        share, given = leases[0].share(release=True), await locks.acquire("third")
        ticket = await given.hand_over()
        break_it(locks._client.store)
        for name, call in calls_of(locks, leases, share, ticket).items():
            try:
                await call()
            except HoldfastError as error:
                failed.add(name)
                text = shown(error)
                secrets = [*tokens, share[10:40], ticket[10:40]]
                assert not [secret for secret in secrets if secret in text], (name, text)
        await locks.close()
    assert failed >= {"acquire", "join", "take", "renew", "release", "hand_over"}


def test_a_claim_that_is_refused(tokens: list[str]) -> None:
    """Nor where nothing is wrong with the store."""
    with memory_locks() as locks, locks.acquire("k"):
        for options in ({"timeout": 0}, {"timeout": 0.01}, {"note": {"x": object()}}, {"owner": 1}):
            error = error_of(lambda options=options: locks.acquire("k", **options))  # type: ignore[misc]
            assert isinstance(error, (Busy, holdfast.UsageError))
            text = shown(error)
            assert not [token for token in tokens if token in text], text


# --- passwords ----------------------------------------------------------------------------------

URLS = [
    f"nosuch://user:{PASSWORD}@host/db",
    f"redis://user:{PASSWORD}@[::1/0",
    f"redis://user:{PASSWORD}/x@host/0",
    f"user:{PASSWORD}@host",
    f"redis://host/0?password={PASSWORD}&nosuch=1",
    f"postgresql://user:{PASSWORD}@127.0.0.1:1/db?wakeup=nosuch",
    f"sqlite:///tmp/x.db?password={PASSWORD}",
    f"s3://bucket/x?secret_access_key={PASSWORD}&nosuch=1",
    f"dynamodb://user:{PASSWORD}@nowhere/table",
]


@pytest.mark.parametrize("connect", [holdfast.connect, aio.connect])
@pytest.mark.parametrize("url", URLS)
def test_a_url_that_is_refused(connect: Callable[..., Any], url: str) -> None:
    """Its password is in no frame of ours, nor below."""
    error = error_of(lambda: connect(url))
    assert isinstance(error, (BadURL, HoldfastError))
    assert PASSWORD not in shown(error)


def test_a_secret_option() -> None:
    """Nor one that was given as an argument."""
    for options in ({"password": PASSWORD}, {"secret_key": PASSWORD}, {"auth_token": PASSWORD}):
        error = error_of(lambda options=options: holdfast.connect("sqlite:x.db", **options))  # type: ignore[misc]
        assert PASSWORD not in shown(error)


def test_a_secret_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one in $HOLDFAST_URL."""
    monkeypatch.setenv("HOLDFAST_URL", f"nosuch://user:{PASSWORD}@host/db")
    assert PASSWORD not in shown(error_of(holdfast.connect))


def wrong_password(server: Any) -> str:
    """The URL of a user who is not known with this password."""
    if isinstance(server, RedisServer):
        return f"redis://nobody:{PASSWORD}@127.0.0.1:{server.port}/0"
    url: str = server.url(user="nobody", password=PASSWORD)
    return url


SERVERS = [RedisServer, PostgreSQL, MariaDB]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("gone", [False, True], ids=["refused", "gone"])
def test_a_wrong_password(kind: type[Engine], gone: bool, tokens: list[str]) -> None:
    """Neither refused by a server, nor where there is none (any more)."""
    require(kind)
    with kind() as server:
        url = wrong_password(server)
        if gone:
            server.kill()
        for use in (
            lambda locks: locks.acquire("k", timeout=0),
            lambda locks: locks.show("k"),
            lambda locks: locks.setup(),
        ):
            with holdfast.connect(url, store_patience=0.1) as locks:
                error = error_of(lambda use=use, locks=locks: use(locks))  # type: ignore[misc]
            assert isinstance(error, HoldfastError)
            assert PASSWORD not in shown(error)
        asyncio.run(use_with_asyncio(url))


async def use_with_asyncio(url: str) -> None:
    """The same with asyncio."""
    locks = aio.connect(url, store_patience=0.1)
    for use in (lambda: locks.acquire("k", timeout=0), lambda: locks.show("k"), locks.setup):
        with pytest.raises(HoldfastError) as raised:
            await use()
        assert PASSWORD not in shown(raised.value)
    await locks.close()


# --- how it is done -----------------------------------------------------------------------------


def test_a_secret_does_not_show_itself() -> None:
    """Not even in part, and it is the same text to everybody else."""
    secret = Secret(PASSWORD * 50)
    assert repr(secret) == repr(secret[:80]) == repr([secret][0]) == "'***'"
    assert secret == PASSWORD * 50
    assert str(secret) == f"{secret}" == PASSWORD * 50
    assert type(str(secret)) is str
    raw = hidden(PASSWORD.encode())
    assert isinstance(raw, SecretBytes)
    assert repr(raw) == repr(raw[1:]) == "'***'"
    assert raw[0] == ord("s")
    assert hidden(None) is None


def test_what_the_caller_was_handling_is_left_alone() -> None:
    """An error of a store has it as its context, and its traceback is the caller's."""
    with faulty_locks(store_patience=0.1) as (locks, store):
        store.plan(then="refuse")
        try:
            try:
                raise KeyError("mine")
            except KeyError:
                locks.show("k")
        except Unavailable as error:
            mine = error.__context__
            while mine is not None and not isinstance(mine, KeyError):
                mine = mine.__context__
            assert mine is not None
            assert mine.__traceback__ is not None
        else:
            raise AssertionError("nothing was raised")
        store.plan()


def test_frames_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """For whoever looks for a mistake in a store."""

    def depth(error: BaseException) -> int:
        trace, found = error.__traceback__, 0
        while trace is not None:
            trace, found = trace.tb_next, found + 1
        return found

    with faulty_locks(store_patience=0.1) as (locks, store):
        store.plan(then="refuse")
        few = depth(error_of(lambda: locks.show("k")))
        monkeypatch.setattr(frames, "KEEPS_FRAMES", True)
        assert depth(error_of(lambda: locks.show("k"))) > few
        store.plan()


def test_a_mistake_keeps_its_frames() -> None:
    """What is no error of ours is to be found."""
    with pytest.raises(ZeroDivisionError) as raised:
        raise ZeroDivisionError
    assert frames.without_frames(raised.value).__traceback__ is not None
