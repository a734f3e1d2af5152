"""The blob stores beside the leases of mops (thds-mops), on a directory and on Azurite.

mops speaks to Azure by the Data Lake's address, which Azurite does not have. On Azurite it is
given a blob store of a few lines for its own registry, on the same obstore as ours, so that
its algorithm and not its client is measured.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import obstore
from obstore.store import AzureStore

import holdfast
from benchmarks.harness import Contestant, race, table
from holdfast.stores.blob.requests import Pause
from holdfast.stores.blob.store import BlobStore
from holdfast.stores.registry import open_store
from tests.conformance.blob_targets import azure_url
from tests.engines.azurite import ACCOUNT, ACCOUNT_KEY, Azurite

CONTENDERS, TURNS = 10, 5
EXPIRE = timedelta(seconds=30)


def main() -> None:
    """Print all tables of the blob stores."""
    logging.disable(logging.INFO)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        print(pairs("a directory", f"file://{folder}/holdfast", f"file://{folder}/mops"), "\n")
        print(contention("a directory", f"file://{folder}/h10", f"file://{folder}/m10"), "\n")
        if not Azurite.installed():
            print("Azurite is not here.")
            return
        server = stack.enter_context(Azurite())
        assert isinstance(server, Azurite)
        url, theirs = azure_url(server), f"azurite://{server.port}"
        print(pairs("Azurite", url, f"{theirs}/mops", calls=20, rounds=7), "\n")
        print(requests(url, f"{theirs}/counted"), "\n")
        print(contention("Azurite", url, f"{theirs}/m10"))


# --- one after the other ----------------------------------------------------------------------


def pairs(where: str, url: str, lease_uri: str, calls: int = 50, rounds: int = 9) -> str:
    """Acquire and release one lock, without contention."""
    with closing(holdfast.connect(url)) as locks:
        ours = Contestant("holdfast", lambda: locks.acquire("bench", ttl=30).release())
        contestants = [ours]
        if _lease() is not None:
            contestants.insert(0, Contestant("mops", lambda: _mops_pair(lease_uri)))
        race(contestants, calls=calls, rounds=rounds)
    title = f"Blob: an uncontended acquire and release on {where}"
    return table(title, contestants, contestants[0])


def _mops_pair(lease_uri: str) -> None:
    acquired = _lease().acquire(lease_uri, expire=EXPIRE, block=None)
    acquired.release()


def _lease() -> Any:
    """mops' module of leases, or None; it knows Azurite afterwards."""
    try:
        found = importlib.import_module("thds.mops.pure.core.lease")
        uris = importlib.import_module("thds.mops.pure.core.uris")
    except ImportError:
        return None
    if _azurite_for_mops not in uris._REGISTERED_BLOB_STORES:
        uris._REGISTERED_BLOB_STORES.append(_azurite_for_mops)
    return found


# --- requests -----------------------------------------------------------------------------------


def requests(url: str, lease_uri: str) -> str:
    """How many requests a pair takes."""
    counted: list[Any] = []
    store = open_store(url)
    assert isinstance(store, BlobStore)
    _count(store, counted)
    lines = ["### Blob: requests on Azurite", "", "| | acquire | release |", "|---|---|---|"]
    with holdfast.connect(store) as locks:
        for name in ("holdfast, a new key", "holdfast, warm"):
            lines.append(_counted(name, counted, partial(locks.acquire, "counted")))
    with holdfast.connect(_cold(url, counted)) as locks:
        lines.append(_counted("holdfast, cold", counted, partial(locks.acquire, "counted")))
    if _lease() is not None:
        _ForMops.counted = counted
        acquire = partial(_lease().acquire, lease_uri, expire=EXPIRE)
        lines.append(_counted("mops", counted, acquire))
        lines.append(
            _counted("mops, without its debug files", counted, partial(acquire, debug=False))
        )
    return "\n".join(lines)


def _cold(url: str, counted: list[Any]) -> BlobStore:
    store = open_store(url)
    assert isinstance(store, BlobStore)
    _count(store, counted)
    return store


def _count(store: BlobStore, counted: list[Any]) -> None:
    answer = store._wire._answer

    def count(request: Any) -> Any:
        if not isinstance(request, Pause):
            counted.append(request)
        return answer(request)

    store._wire._answer = count  # type: ignore[method-assign]


def _counted(name: str, counted: list[Any], acquire: Callable[[], Any]) -> str:
    counted.clear()
    lease = acquire()
    acquired = len(counted)
    lease.release()
    return f"| {name} | {acquired} | {len(counted) - acquired} |"


# --- many at once -------------------------------------------------------------------------------


def contention(where: str, url: str, lease_uri: str) -> str:
    """So many processes that all want one lock, several times each."""
    lines = [
        f"### Blob: {CONTENDERS} processes, {TURNS} turns each, one lock, on {where}", "",
        "| | seconds in all | turns per second | overlaps |", "|---|---|---|---|",
    ]  # fmt: skip
    if _lease() is not None:
        lines.append(_crowd("mops", _mops_turns, lease_uri))
    lines.append(_crowd("holdfast", _our_turns, url))
    return "\n".join(lines)


def _crowd(name: str, turns: Callable[..., None], where: str) -> str:
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        gate = spawn.Barrier(CONTENDERS + 1)
        crowd = [spawn.Process(target=turns, args=(where, folder, gate)) for _ in range(CONTENDERS)]
        for member in crowd:
            member.start()
        gate.wait()
        started = time.perf_counter()
        for member in crowd:
            member.join()
        took = time.perf_counter() - started
        overlaps = len(list(Path(folder).glob("overlap-*")))
    return f"| {name} | {took:.1f} | {CONTENDERS * TURNS / took:.1f} | {overlaps} |"


def _our_turns(url: str, folder: str, gate: Any) -> None:
    logging.disable(logging.INFO)
    with holdfast.connect(url) as locks:
        gate.wait()
        for _ in range(TURNS):
            with locks.acquire("crowd", ttl=30):
                _inside(folder)


def _mops_turns(lease_uri: str, folder: str, gate: Any) -> None:
    logging.disable(logging.INFO)
    lease = _lease()
    gate.wait()
    for _ in range(TURNS):
        acquired = lease.acquire(lease_uri, expire=EXPIRE, block=None)
        _inside(folder)
        acquired.release()


def _inside(folder: str) -> None:
    """Be alone for a moment, or notice that one is not."""
    inside = Path(folder) / "inside"
    try:
        inside.touch(exist_ok=False)
    except FileExistsError:
        (Path(folder) / f"overlap-{time.time_ns()}").touch()
    time.sleep(0.002)
    inside.unlink(missing_ok=True)


# --- mops on Azurite ----------------------------------------------------------------------------


class _ForMops:
    """What mops' leases need of a blob store, by one request for each call."""

    counted: list[Any] | None = None

    def __init__(self, port: int) -> None:
        self._store = AzureStore(
            "locks", account_name=ACCOUNT, account_key=ACCOUNT_KEY,
            endpoint=f"http://127.0.0.1:{port}/{ACCOUNT}", client_options={"allow_http": True},
        )  # fmt: skip

    def readbytesinto(self, uri: str, stream: Any, *, type_hint: str = "") -> None:
        """GET."""
        self._count()
        stream.write(bytes(obstore.get(self._store, _path(uri)).bytes()))

    def putbytes(self, uri: str, data: Any, *, type_hint: str = "") -> None:
        """PUT."""
        self._count()
        obstore.put(self._store, _path(uri), data)

    def join(self, *parts: str) -> str:
        """With slashes."""
        return "/".join(part.strip("/") for part in parts)

    def is_blob_not_found(self, exc: Exception) -> bool:
        """As the name says."""
        return isinstance(exc, FileNotFoundError)

    def _count(self) -> None:
        if self.counted is not None:
            self.counted.append(None)


def _path(uri: str) -> str:
    return uri.partition("://")[2].partition("/")[2]


_for_mops: dict[int, _ForMops] = {}


def _azurite_for_mops(uri: str) -> _ForMops | None:
    if not uri.startswith("azurite://"):
        return None
    port = int(uri.partition("://")[2].partition("/")[0])
    return _for_mops.setdefault(port, _ForMops(port))


if __name__ == "__main__":
    main()
