"""Objects that are replaced on a condition, and files: every kind of store that obstore knows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore, S3Store

import holdfast
from holdfast import KeyMismatch, LeaseLost, StaleFence, fencing
from holdfast.fencing import Fence, aio
from holdfast.fencing.blob import objects
from tests.engines.azurite import ACCOUNT, ACCOUNT_KEY, Azurite
from tests.engines.gcs import BUCKET, FakeGCS
from tests.engines.s3 import S3Server
from tests.engines.shared import shared
from tests.helpers import memory_locks, unique

HTTP: Any = {"allow_http": True}


def azure(folder: Path) -> Any:
    """Azurite."""
    server = shared(Azurite)
    server.create_container("locks")
    return AzureStore("locks", account_name=ACCOUNT, account_key=ACCOUNT_KEY,
                      endpoint=server.endpoint, client_options=HTTP)  # fmt: skip


def s3(folder: Path) -> Any:
    """moto."""
    server = shared(S3Server)
    server.create_bucket("locks")
    return S3Store("locks", endpoint=server.endpoint, region="us-east-1", access_key_id="h",
                   secret_access_key="h", client_options=HTTP)  # fmt: skip


def gcs(folder: Path) -> Any:
    """Ours."""
    key = shared(FakeGCS).service_account_key
    return GCSStore(BUCKET, service_account_key=key, client_options=HTTP)


def memory(folder: Path) -> Any:
    """obstore's own."""
    return MemoryStore()


def local(folder: Path) -> Any:
    """A directory."""
    return LocalStore(folder)


STORES: dict[str, Callable[[Path], Any]] = {
    "azure": azure, "s3": s3, "gcs": gcs, "memory": memory, "local": local,
}  # fmt: skip


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Every kind of store."""
    return STORES[request.param](tmp_path)


def test_put_get_and_delete(store: Any) -> None:
    """A larger fence closes the object for smaller ones, and a deleted one stays closed."""
    path = f"{unique()}/report.csv"
    with pytest.raises(FileNotFoundError):
        fencing.blob.get(store, path)
    fencing.blob.put(store, path, "first", Fence("é/k", 5))
    fencing.blob.put(store, path, b"again", Fence("é/k", 5))
    fencing.blob.put(store, path, b"later", Fence("é/k", 9))
    with pytest.raises(StaleFence) as refused:
        fencing.blob.put(store, path, b"stale", Fence("é/k", 6))
    error = refused.value
    assert (error.key, error.fence, error.remembered) == ("é/k", 6, 9)
    with pytest.raises(StaleFence):
        fencing.blob.delete(store, path, Fence("é/k", 6))
    assert fencing.blob.get(store, path) == b"later"
    assert bytes(obstore.get(store, path).bytes()) == b"later"  # anybody can read it
    fencing.blob.delete(store, path, Fence("é/k", 10))
    with pytest.raises(FileNotFoundError):
        fencing.blob.get(store, path)
    with pytest.raises(StaleFence):
        fencing.blob.put(store, path, b"stale", Fence("é/k", 9))
    fencing.blob.put(store, path, b"new", Fence("é/k", 11))
    assert fencing.blob.get(store, path) == b"new"


def test_asyncio(store: Any) -> None:
    """The same, awaited."""

    async def story() -> None:
        path = unique()
        await aio.blob.put(store, path, b"one", Fence("k", 2))
        with pytest.raises(StaleFence):
            await aio.blob.put(store, path, b"stale", Fence("k", 1))
        assert await aio.blob.get(store, path) == b"one"
        await aio.blob.delete(store, path, Fence("k", 2))
        with pytest.raises(FileNotFoundError):
            await aio.blob.get(store, path)

    asyncio.run(story())


def test_an_object_of_another_key(store: Any) -> None:
    """Fences of different keys cannot be compared."""
    path = unique()
    fencing.blob.put(store, path, b"x", Fence("one", 5))
    with pytest.raises(KeyMismatch, match="guarded by 'one'"):
        fencing.blob.put(store, path, b"y", Fence("two", 9))
    assert fencing.blob.get(store, path) == b"x"


def test_a_lease_that_is_over(store: Any) -> None:
    """Nothing is written."""
    path = unique()
    with memory_locks() as locks:
        lease = locks.acquire("k")
        lease.release()
        with pytest.raises(LeaseLost):
            fencing.blob.put(store, path, b"x", lease)
    with pytest.raises(FileNotFoundError):
        fencing.blob.get(store, path)


BUCKETS = [name for name in STORES if name != "local"]


@pytest.mark.parametrize("kind", BUCKETS)
def test_an_object_that_nobody_has_guarded_yet(kind: str, tmp_path: Path) -> None:
    """It is replaced, and guarded from then on. Attributes go with it."""
    store, path = STORES[kind](tmp_path), unique()
    obstore.put(store, path, b"before")
    attributes = {"Content-Type": "text/csv"}
    fencing.blob.put(store, path, b"x", Fence("k", 2), attributes=attributes)
    if kind != "gcs":  # ours keeps only what we need
        assert obstore.get(store, path).attributes["Content-Type"] == "text/csv"
    with pytest.raises(StaleFence):
        fencing.blob.put(store, path, b"y", Fence("k", 1))


@pytest.mark.parametrize("kind", BUCKETS)
def test_a_write_between_look_and_put(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The condition sees it: a later holder's ends it, an equal one's is written over."""
    store, path = STORES[kind](tmp_path), unique()
    look, others = objects._look, [Fence("k", 5), Fence("k", 7)]

    def interrupted(*arguments: Any) -> Any:
        found = look(*arguments)
        if others:
            other = others.pop(0)
            monkeypatch.setattr(objects, "_look", look)
            fencing.blob.put(store, path, f"of {other.fence}", other)
            monkeypatch.setattr(objects, "_look", interrupted)
        return found

    monkeypatch.setattr(objects, "_look", interrupted)
    with pytest.raises(StaleFence):
        fencing.blob.put(store, path, b"mine", Fence("k", 5))
    assert others == []
    assert fencing.blob.get(store, path) == b"of 7"


def test_metadata_that_cannot_be_read() -> None:
    """Nobody can tell who was there, so nothing is written."""
    store = MemoryStore()
    obstore.put(store, "x", b"", attributes={"holdfast_fence": "many"})
    with pytest.raises(holdfast.CorruptRecord, match="cannot be read"):
        fencing.blob.put(store, "x", b"y", Fence("k", 1))


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["../x", "a/../../x", "a/./x", "a//x", "", "/", "a/.."])
def test_a_path_that_leads_out_of_a_local_store(path: str, tmp_path: Path) -> None:
    """It is refused, as obstore does, and nothing is written."""
    store = LocalStore(tmp_path / "inside", mkdir=True)
    with pytest.raises(holdfast.UsageError, match="path"):
        fencing.blob.put(store, path, b"x", Fence("k", 1))
    with pytest.raises(holdfast.UsageError, match="path"):
        fencing.blob.delete(store, path, Fence("k", 1))
    assert [found.name for found in tmp_path.rglob("*")] == ["inside"]


def test_a_path_with_a_slash_before_it(tmp_path: Path) -> None:
    """It is in the store, where obstore finds it."""
    store = LocalStore(tmp_path)
    fencing.blob.put(store, "/a/x", b"x", Fence("k", 1))
    assert fencing.blob.get(store, "/a/x") == b"x" == (tmp_path / "a" / "x").read_bytes()


def test_files(tmp_path: Path) -> None:
    """Written whole, renamed, removed; the fence is remembered beside."""
    path = tmp_path / "new" / "report.csv"
    fencing.files.write(path, "first", Fence("k", 5), fsync=True)
    made = tmp_path / "made.csv"
    made.write_text("later")
    fencing.files.replace(made, path, Fence("k", 7))
    assert path.read_text() == "later"
    assert not made.exists()
    made.write_text("stale")
    with pytest.raises(StaleFence):
        fencing.files.write(str(path), b"stale", Fence("k", 6))
    with pytest.raises(StaleFence):
        fencing.files.replace(made, path, Fence("k", 6))
    with pytest.raises(StaleFence):
        fencing.files.remove(path, Fence("k", 6))
    assert path.read_text() == "later"
    fencing.files.remove(path, Fence("k", 7))
    fencing.files.remove(path, Fence("k", 7))
    with pytest.raises(StaleFence):
        fencing.files.write(path, b"stale", Fence("k", 6))
    assert [each.name for each in path.parent.iterdir()] == [".holdfast"]
    assert not list((path.parent / ".holdfast").glob("new-*"))


def test_files_by_asyncio(tmp_path: Path) -> None:
    """In a thread."""

    async def story() -> None:
        path = tmp_path / "a"
        await aio.files.write(path, "x", Fence("k", 2))
        (tmp_path / "b").write_text("y")
        await aio.files.replace(tmp_path / "b", path, Fence("k", 2))
        assert path.read_text() == "y"
        with pytest.raises(StaleFence):
            await aio.files.remove(path, Fence("k", 1))

    asyncio.run(story())


def test_bad_files(tmp_path: Path) -> None:
    """No name, nothing to put into place, a gate that cannot be read, a folder that is a file."""
    with pytest.raises(holdfast.UsageError, match="does not name a file"):
        fencing.files.write("/", b"", Fence("k", 1))
    for name in ("..", ".holdfast", ".holdfast/fence-x.json"):
        with pytest.raises(holdfast.UsageError, match="does not name a file"):
            fencing.files.write(tmp_path / name, b"", Fence("k", 1))
    with pytest.raises(holdfast.UsageError, match="not a file"):
        fencing.files.replace(tmp_path / "nothing", tmp_path / "x", Fence("k", 1))
    fencing.files.write(tmp_path / "x", b"x", Fence("k", 1))
    gate = tmp_path / ".holdfast" / "fence-x.json"
    assert json.loads(gate.read_text()) == {"key": "k", "fence": 1}
    gate.write_text("{}")
    with pytest.raises(holdfast.CorruptRecord, match="cannot be read"):
        fencing.files.write(tmp_path / "x", b"y", Fence("k", 2))
    assert (tmp_path / "x").read_bytes() == b"x"
    with pytest.raises(holdfast.HoldfastError):
        fencing.files.write(tmp_path / "x" / "y", b"y", Fence("k", 2))


def test_long_names(tmp_path: Path) -> None:
    """As long as the file system allows."""
    name = "n" * 250
    fencing.files.write(tmp_path / name, b"x", Fence("k", 2))
    with pytest.raises(StaleFence):
        fencing.files.write(tmp_path / name, b"x", Fence("k", 1))
