"""What is wrong with an address, a right or an object is said clearly, and nothing is harmed."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore, S3Store

import holdfast
from holdfast.core.contract import Swapped
from holdfast.core.records import Record
from holdfast.errors import (
    BadOption,
    BadURL,
    CorruptRecord,
    HoldfastError,
    Misconfigured,
    StoreReadOnly,
    Unavailable,
)
from holdfast.stores.base import Store
from holdfast.stores.blob.names import key_of, name_of
from holdfast.stores.blob.store import BlobStore
from holdfast.stores.directory.store import DirectoryStore
from holdfast.stores.registry import open_store
from tests.conformance.blob_targets import gcs_url
from tests.engines.azurite import ACCOUNT_KEY
from tests.engines.base import free_port
from tests.engines.gcs import UndatedGCS
from tests.engines.s3 import S3Server
from tests.engines.shared import shared
from tests.stores.blob.conftest import url_of

S3 = "access_key_id=a&secret_access_key=s3cret&region=x"


def refuse(url: str, kind: type[HoldfastError], *words: str) -> HoldfastError:
    """Check that reading, writing, listing and waiting fail like this, in both faces."""
    store = open_store(url)
    said = [
        _failure(kind, lambda: store.load("k")),
        _failure(kind, lambda: store.swap("k", None, Record(1))),
        _failure(kind, lambda: store.setup()),
        _failure(kind, lambda: asyncio.run(store.to_async().load("k"))),
    ]
    store.close()
    for failure in said:
        assert "s3cret" not in str(failure)
        assert ACCOUNT_KEY not in str(failure)
        for word in words:
            assert word in str(failure), str(failure)
    return said[0]


def _failure(kind: type[HoldfastError], act: object) -> HoldfastError:
    with pytest.raises(kind) as caught:
        act()  # type: ignore[operator]
    return caught.value


# --- addresses ------------------------------------------------------------------------------


def test_no_bucket(bucket_url: str) -> None:
    """A bucket that does not exist is told as such, not taken for a bucket without locks."""
    url = bucket_url.replace("://locks/", "://no-such-bucket/")
    failure = refuse(url, Misconfigured, "no-such-bucket", "create it")
    assert failure.__cause__ is not None


def test_nobody_listens() -> None:
    """A refused connection means that nothing was done; it may work later."""
    endpoint = quote(f"http://127.0.0.1:{free_port()}")
    failure = refuse(f"s3://locks/p?endpoint={endpoint}&{S3}", Unavailable, "s3://locks/p")
    assert failure.__cause__ is not None


@pytest.mark.parametrize(
    "url",
    [
        "s3://", "s3:///prefix", "s3://bucket:80/p", "s3://bucket/a//b", "s3://bucket/a/../b",
        "s3://bucket/./b", "s3://bucket/a%0Ab", "s3://bucket/a%5Cb", "s3://bucket/" + 800 * "x",
        "s3://bucket/p?no_such_option=1", "az://", "az://c/p?no_such_option=1", "gs://",
        "gs://b/p?no_such_option=1", "file://", "file:///", "file://host/path",
        "file:relative", "file:~/locks",
        "file:///tmp/x?no_such_option=1",
    ],
)  # fmt: skip
def test_bad_urls(url: str) -> None:
    """What is no address of a blob store is refused before anything is asked of anyone."""
    with pytest.raises(BadURL):
        open_store(url)


@pytest.mark.parametrize(
    "option",
    ["protocol=hope", "timeout_s=soon", "timeout_s=0", "clock_skew_s=-1", "credentials=mine"],
)
def test_bad_options(option: str) -> None:
    """An option with a value that makes no sense is refused."""
    with pytest.raises(BadOption, match=option.partition("=")[0]):
        open_store(f"s3://bucket/p?{option}&{S3}")


@pytest.mark.parametrize("name", ["endpoint", "endpoint_url", "aws_endpoint", "AWS_ENDPOINT_URL"])
def test_other_names_of_the_endpoint(name: str, tmp_path: Path) -> None:
    """Whatever name of obstore's it goes by, it may be one without TLS."""
    store = open_store(url_of("s3", tmp_path).replace("endpoint=", f"{name}="))
    assert store.load("k").version is None
    store.close()


def test_an_endpoint_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore finds it there; it may be one without TLS, too, but it is a URL."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", shared(S3Server).endpoint)
    shared(S3Server).create_bucket("locks")
    store = open_store(f"s3://locks/{tmp_path.name}?{S3}")
    assert store.load("k").version is None
    store.close()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(BadOption, match=r"AWS_ENDPOINT_URL.*http://"):
        open_store(f"s3://locks/p?{S3}")


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9000", "localhost:9000", "ftp://localhost", ""])
@pytest.mark.parametrize("bucket", ["s3://b/p?", "az://c/p?account_name=a&"])
def test_an_endpoint_is_a_url(bucket: str, endpoint: str) -> None:
    """Without a scheme obstore would panic, which no `except Exception` catches."""
    with pytest.raises(BadOption, match=r"endpoint.*http://"):
        open_store(f"{bucket}endpoint={quote(endpoint)}")


@pytest.mark.parametrize("prefix", ["with space", "ünï", "a%2Fb", "a+b", "q&a=1", "a#b", "%", "~"])
def test_odd_prefixes(bucket_url: str, prefix: str) -> None:
    """A prefix may have odd characters in it; nothing is written beside it."""
    base, _, query = bucket_url.partition("?")
    store = open_store(f"{base}/{quote(prefix, safe='')}?{query}")
    assert isinstance(store, BlobStore)
    assert isinstance(store.swap("../k", None, Record(1)), Swapped)
    assert [key for key, _ in store.scan("", None, 10).entries] == ["../k"]
    assert (store.load("../k")).record.fence == 1
    outer = base.partition("://")[2].partition("/")[2]
    paths = [meta["path"] for chunk in obstore.list(store.bucket.store, outer) for meta in chunk]
    inner = prefix.replace("%2F", "/")
    assert paths
    assert all(path.startswith((f"{outer}/{prefix}/", f"{outer}/{inner}/")) for path in paths)


def test_wrong_key(tmp_path: Path) -> None:
    """Credentials that are not accepted are told as such, and not shown."""
    good = quote(ACCOUNT_KEY, safe="")
    url = url_of("az", tmp_path).replace(good, "czNjcmV0")
    refuse(url, Misconfigured, "credentials")


def test_no_time() -> None:
    """A service that does not tell when an object was written cannot be used, and says so."""
    store = open_store(gcs_url(shared(UndatedGCS)))
    assert isinstance(store.swap("k", None, Record(1)), Swapped)
    with pytest.raises(Misconfigured, match="Last-Modified"):
        store.load("k")
    with holdfast.connect(store) as locks:
        with pytest.raises(Misconfigured, match="Last-Modified"):
            locks.acquire("k")


# --- objects that are not ours ----------------------------------------------------------------


@pytest.mark.parametrize(
    "junk",
    [b"", b"\xff\xfe", b"hello", b"[]", b'{"a": 1}', b'{"v": 1}', b'{"key": "k", "v": 1}',
     b'{"key": "k", "write": "w", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"],
    ids=lambda junk: repr(junk)[:40],
)  # fmt: skip
def test_foreign_objects_are_left_alone(url: str, junk: bytes) -> None:
    """What somebody else put under a lock's name stops us with an error, and stays."""
    store = open_store(url)
    with holdfast.connect(store) as locks:
        place = _Raw(store)
        place[name_of("k")] = junk
        for act in (lambda: locks.acquire("k", timeout=0), lambda: locks.show("k")):
            with pytest.raises(CorruptRecord, match="evict"):
                act()
        assert [bool(lock.fault) for lock in locks.list("k")] == [True]
        assert place[name_of("k")] == junk
        locks.evict("k")
        locks.acquire("k", timeout=0).release()


def test_an_object_of_a_newer_release_is_left_alone(url: str) -> None:
    """It is not evicted either, though nothing but its format can be read."""
    store = open_store(url)
    with holdfast.connect(store) as locks:
        place, newer = _Raw(store), b'{"v": 99, "lock": {"name": "k"}}'
        place[name_of("k")] = newer
        acts = (lambda: locks.acquire("k", timeout=0), lambda: locks.evict("k"))
        for act in acts:
            with pytest.raises(CorruptRecord, match="upgrade holdfast"):
                act()
        assert place[name_of("k")] == newer


def test_another_keys_object(url: str) -> None:
    """An object that says it is another key's is not used: names may have been folded."""
    store = open_store(url)
    with holdfast.connect(store) as locks:
        locks.acquire("K").release()
        place = _Raw(store)
        place[name_of("k")] = place[name_of("K")]
        with pytest.raises(CorruptRecord, match="'K'"):
            locks.acquire("k", timeout=0)


def test_other_files_are_not_listed(url: str) -> None:
    """What else lies in the same place is nobody's lock."""
    store = open_store(url)
    with holdfast.connect(store) as locks:
        place = _Raw(store)
        place["notes.txt"] = b"hello"
        place["no%zzkey.json"] = b"hello"
        with locks.acquire("k"):
            assert [lock.key for lock in locks.list()] == ["k"]


class _Raw:
    """The objects of a store, past Holdfast."""

    def __init__(self, store: Store) -> None:
        assert isinstance(store, (BlobStore, DirectoryStore))
        self._store = store

    def __setitem__(self, name: str, body: bytes) -> None:
        if isinstance(self._store, BlobStore):
            obstore.put(self._store.bucket.store, self._store.bucket.path(name), body)
        else:
            (self._store.path / name).write_bytes(body)

    def __getitem__(self, name: str) -> bytes:
        if isinstance(self._store, BlobStore):
            path = self._store.bucket.path(name)
            return bytes(obstore.get(self._store.bucket.store, path).bytes())
        return (self._store.path / name).read_bytes()


# --- directories ------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["pipe", "device", "folder", "loop"])
def test_what_is_no_file(tmp_path: Path, what: str) -> None:
    """Something else in a record's place is neither waited for nor read on and on, and is told
    among the others."""
    place = tmp_path / "locks" / name_of("k")
    with holdfast.connect(f"file://{tmp_path}/locks") as locks, locks.acquire("other"):
        if what == "pipe":
            os.mkfifo(place)
        elif what == "folder":
            place.mkdir()
        else:
            place.symlink_to("/dev/zero" if what == "device" else place)
        with pytest.raises(CorruptRecord):
            locks.acquire("k", timeout=0)
        assert [lock.key for lock in locks.list() if lock.fault] == ["k"]
        assert [lock.key for lock in locks.list() if lock.holders] == ["other"]
        if what != "folder":
            locks.evict("k")
            with locks.acquire("k", timeout=0):
                assert place.is_file()


def test_missing_parent(tmp_path: Path) -> None:
    """Only the last directory is made without being asked; `setup` makes them all."""
    store = open_store(f"file://{tmp_path}/a/b/c")
    acts = (
        lambda: store.load("k"),
        lambda: store.swap("k", None, Record(1)),
        lambda: store.scan("", None, 10),
        lambda: holdfast.connect(store).try_acquire("k"),
    )
    for act in acts:
        with pytest.raises(Misconfigured, match="holdfast setup"):
            act()
    store.setup()
    assert isinstance(store.swap("k", None, Record(1)), Swapped)
    store.close()


def test_a_file_in_place_of_a_directory(tmp_path: Path) -> None:
    """A file is not a directory, and is left alone."""
    (tmp_path / "f").write_text("mine")
    with pytest.raises(Misconfigured):
        open_store(f"file://{tmp_path}/f")
    assert (tmp_path / "f").read_text() == "mine"


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    """A directory that was removed is not an empty one: its locks may be elsewhere now."""
    store = open_store(f"file://{tmp_path}/d")
    shutil.rmtree(tmp_path / "d")
    for act in (lambda: store.load("k"), lambda: store.swap("k", None, Record(1))):
        with pytest.raises(Misconfigured, match="gone"):
            act()


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to write everywhere."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(was)


def test_a_directory_that_cannot_be_written() -> None:
    """Looking works where writing does not, also for who comes later."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        store = open_store(f"file://{folder}/d")
        store.swap("k", None, Record(1))
        for path in (Path(folder, "d"), Path(folder, "d", ".holdfast")):
            path.chmod(0o555)
        with as_nobody():
            for one in (store, open_store(f"file://{folder}/d")):
                with pytest.raises(StoreReadOnly):
                    one.swap("j", None, Record(1))
                assert one.load("k").record.fence == 1
        for path in (Path(folder, "d"), Path(folder, "d", ".holdfast")):
            path.chmod(0o755)


def test_a_tidied_directory_still_excludes(tmp_path: Path) -> None:
    """Whoever removes our own folder while it is in use harms nobody."""
    with (
        holdfast.connect(f"file://{tmp_path}/d") as a,
        holdfast.connect(f"file://{tmp_path}/d") as b,
    ):
        lease = a.acquire("k", ttl=60)
        shutil.rmtree(tmp_path / "d" / ".holdfast")
        assert b.try_acquire("k") is None
        lease.release()
        b.acquire("k", timeout=5).release()


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["a", "..", ".", "a/b", "é", "+", "~", "%", "a" * 512, "é" * 256])
def test_names(key: str) -> None:
    """A name is short, without a slash, and the key's own."""
    name = name_of(key)
    assert "/" not in name
    assert len(name) <= 210
    assert name.endswith(".json")
    short = key_of(name)
    assert short == key or (len(key) > 100 and short is not None and key.startswith(short[:-1]))


# --- objects of obstore's -----------------------------------------------------------------------


def test_open_stores_are_adopted(tmp_path: Path) -> None:
    """An open store of obstore's can be used; a local one as a directory."""
    memory = MemoryStore()
    with holdfast.connect(memory, prefix="locks") as locks:
        locks.acquire("k").release()
    assert "locks/k.json" in [meta["path"] for chunk in memory.list() for meta in chunk]
    store = open_store(LocalStore(prefix=tmp_path))
    assert isinstance(store, DirectoryStore)
    assert store.path == tmp_path
    with pytest.raises(BadOption):
        open_store(S3Store("bucket"), region="x")


def test_upper_case_in_a_bucket() -> None:
    """Old buckets on S3 may have it, and the one in lower case is somebody else's."""
    store = open_store("s3://Old-Bucket/locks?region=us-east-1&access_key_id=a&secret_access_key=b")
    assert isinstance(store, BlobStore)
    assert store.bucket.store.config["bucket"] == "Old-Bucket"
