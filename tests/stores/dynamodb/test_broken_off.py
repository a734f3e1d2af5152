"""Connections that break at a certain place: surely not done, or perhaps done."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pytest

import holdfast
from holdfast.core.contract import Swapped
from holdfast.core.records import Record
from holdfast.errors import HoldfastError, Misconfigured, OutcomeUnknown, Unavailable
from holdfast.stores.registry import open_store
from tests.engines.base import free_port
from tests.engines.tls import TLSFront, new_certificate
from tests.shortage import no_descriptors
from tests.stores.breaking import Break, BreakingServer
from tests.stores.dynamodb.lab import Lab

DONE = Break(passes_on=True)
BREAKS = {
    "reset before it was read": Break(reads=False, reset=True),
    "closed before it was read": Break(reads=False),
    "reset before it was done": Break(reset=True),
    "closed before it was done": Break(),
    "reset after it was done": DONE._replace(reset=True),
    "closed after it was done": DONE,
    "halved, then reset": DONE._replace(reply=0.5, reset=True),
    "halved, then closed": DONE._replace(reply=0.5),
    "all but the end": DONE._replace(reply=0.99),
    "late": DONE._replace(reply=1.0, late_s=2.0),
    "no HTTP": DONE._replace(reply=b"hello\r\n\r\n"),
}


@pytest.fixture
def table(lab: Lab) -> str:
    """A table that is there."""
    return lab.store().options.table


def failure(url: str) -> HoldfastError:
    """What a write fails with."""
    store = open_store(url)
    with pytest.raises(HoldfastError) as caught:
        store.swap("k", None, Record(7))
    store.close()
    assert caught.value.__cause__ is not None
    return caught.value


@pytest.mark.parametrize("how", BREAKS)
def test_a_write_that_was_broken_off_is_unknown(lab: Lab, table: str, how: str) -> None:
    """Whatever became of the connection: the request had left, and may have been carried out."""
    port = urlsplit(lab.endpoint).port
    assert port is not None
    with BreakingServer(port, BREAKS[how], (b"POST ",)) as server:
        assert type(failure(lab.url(table, server.port, timeout_s=1))) is OutcomeUnknown
        found = lab.open(table).load("k").record.fence
        assert found == (7 if BREAKS[how].passes_on else 0)
        store = open_store(lab.url(table, server.port, timeout_s=1))
        for read in (lambda: store.load("k"), lambda: store.scan("", None, 10)):
            with pytest.raises(Unavailable):
                read()
        store.close()


def test_without_a_connection_nothing_was_done(lab: Lab, table: str) -> None:
    """Nobody listens, or nobody knows where."""
    assert type(failure(lab.url(table, free_port()))) is Unavailable
    nowhere = lab.url(table).replace("127.0.0.1", "no-such-host.invalid")
    assert type(failure(nowhere)) is Unavailable


def test_a_certificate_that_cannot_be_trusted(lab: Lab, table: str, tmp_path: Path) -> None:
    """Nothing was sent, and nothing will be before somebody mends it."""
    port = urlsplit(lab.endpoint).port
    assert port is not None
    with TLSFront(port, new_certificate(tmp_path)) as front:
        url = lab.url(table, front.port).replace("http://", "https://")
        assert type(failure(url)) is Misconfigured


def test_a_proxy_that_is_not_there(lab: Lab, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """urllib3 does not always tell whether the request had left; a read says what to check."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert type(failure(lab.url(table))) is OutcomeUnknown
    store = open_store(lab.url(table))
    with pytest.raises(Unavailable, match="proxy"):
        store.load("k")
    store.close()


def test_without_descriptors(lab: Lab, table: str) -> None:
    """A new client and a new connection say what to do; later they work."""
    url = lab.url(table)
    store = open_store(url)
    with no_descriptors():
        for opening in (
            lambda: open_store(url),
            lambda: holdfast.connect(url),
            lambda: open_store(boto3.Session(region_name="eu-west-1"), table=table),
        ):
            with pytest.raises(Unavailable, match="ulimit -n"):
                opening()
        with pytest.raises(Unavailable, match="ulimit -n"):
            store.swap("k", None, Record(7))
    assert isinstance(store.swap("k", None, Record(7)), Swapped)
    store.close()
    open_store(url).close()
