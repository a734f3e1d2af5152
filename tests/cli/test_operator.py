"""`evict`, `purge`, `setup` and `doctor`: what operators do."""

from __future__ import annotations

import json
import socket
import sqlite3
from typing import Any, NoReturn

import pytest
from msgspec.structs import replace

from holdfast import LeaseLost
from holdfast.cli import codes
from holdfast.cli.doctor import Examination
from holdfast.core.records import LARGEST_FENCE, LONGEST_TTL, Waiter
from holdfast.errors import Unavailable
from holdfast.stores.memory import MemoryStore
from tests.cli.program import Program


def test_evict(holdfast: Program) -> None:
    """It says who is thrown out, and the lock is free."""
    with holdfast.locks() as locks:
        locks.acquire("k", owner="gone astray", keep=False)
        done = holdfast("evict", "k", "--yes")
        assert done.returncode == 0
        assert "evicted gone astray" in done.stderr
        assert locks.show("k").free


def test_evict_json(holdfast: Program) -> None:
    """Programs get the evicted holders."""
    with holdfast.locks() as locks:
        locks.acquire("k", owner="gone astray", keep=False)
        done = holdfast.json("evict", "k", "--yes")
        assert [holder["owner"] for holder in done] == ["gone astray"]


def test_evict_does_not_guess(holdfast: Program) -> None:
    """Without --yes and without a terminal nobody is thrown out."""
    with holdfast.locks() as locks, locks.acquire("k"):
        done = holdfast("evict", "k")
        assert done.returncode == codes.NO
        assert "--yes" in done.stderr
        assert not locks.show("k").free


def test_evict_one_of_many(holdfast: Program) -> None:
    """--fence throws out one holder and leaves the others."""
    with holdfast.locks() as locks:
        one = locks.acquire("k", mode="shared", keep=False)
        two = locks.acquire("k", mode="shared", keep=False)
        assert holdfast("evict", "k", "--yes", "--fence", str(one.fence)).returncode == 0
        assert [holder.fence for holder in locks.show("k").holders] == [two.fence]
        assert holdfast("evict", "k", "--yes", "--fence", "1").returncode == codes.NO


@pytest.mark.parametrize("which", ["the holder's", "the lock's"])
def test_evict_an_exclusive_holder_by_either_fence(holdfast: Program, which: str) -> None:
    """--fence takes the number that HOLDFAST_FENCE exports, and the largest that `show` names."""
    with holdfast.locks() as locks:
        lease = locks.acquire("k", ttl=3600, keep=False)
        largest = locks.show("k").fence
        assert largest > lease.fence
        for stranger in (lease.fence - 1, largest + 1):
            done = holdfast("evict", "k", "--yes", "--fence", str(stranger))
            assert done.returncode == codes.NO
        fence = lease.fence if which == "the holder's" else largest
        (evicted,) = holdfast.json("evict", "k", "--yes", "--fence", str(fence))
        assert evicted["fence"] == lease.fence
        assert locks.show("k").free


def test_evict_waiters(holdfast: Program) -> None:
    """--waiters empties a queue, and leaves the holder; it does not go with --fence."""
    with holdfast.locks() as locks:
        lease = locks.acquire("k", ttl=60)
        store = locks._client.store
        entry = store.load("k")
        assert entry.now is not None
        days = LONGEST_TTL // 2
        ghost = Waiter("g", "ghost", "exclusive", days, 1, entry.now.latest + days, "x")
        store.swap("k", entry.version, replace(entry.record, queue=(ghost,)))
        assert holdfast("evict", "k", "--waiters").returncode == codes.NO  # nobody said yes
        done = holdfast("evict", "k", "--waiters", "--yes")
        assert (done.returncode, "evicted ghost" in done.stderr) == (0, True)
        assert holdfast("evict", "k", "--waiters", "--yes").returncode == codes.NO
        assert holdfast("evict", "k", "--waiters", "--fence", "1").returncode == codes.USAGE
        lease.renew()
        assert lease.release() is True


def test_evict_nobody(holdfast: Program) -> None:
    """A free lock has nobody to throw out."""
    done = holdfast("evict", "k", "--yes")
    assert (done.returncode, done.stderr) == (codes.NO, "holdfast: nobody holds 'k'\n")


def test_corrupt_record(holdfast: Program) -> None:
    """A record that cannot be read is reported, listed, and mended by evict."""
    with holdfast.locks() as locks:
        locks.acquire("k").release()
        fence = locks.show("k").fence
    with sqlite3.connect(holdfast.file) as file:
        file.execute("UPDATE holdfast_locks SET record = 'not a record', version = version + 1")
    file.close()
    assert holdfast("run", "k", "--", "true").returncode == codes.STORE
    assert holdfast("show", "k").returncode == codes.STORE
    assert "unreadable" in holdfast("ls").stdout
    assert holdfast.json("ls")[0]["fault"]
    assert holdfast("evict", "k").returncode == codes.NO
    assert holdfast("evict", "k", "--yes").returncode == 0
    done = holdfast("run", "k", "--", "sh", "-c", "echo $HOLDFAST_FENCE")
    assert int(done.stdout) > fence


def test_record_of_a_newer_release(holdfast: Program) -> None:
    """It is neither used nor mended, whatever is said: upgrading is advised."""
    with holdfast.locks() as locks:
        locks.acquire("k").release()
    with sqlite3.connect(holdfast.file) as file:
        file.execute("""UPDATE holdfast_locks SET record = '{"v":2}', version = version + 1""")
    file.close()
    for arguments in (("evict", "k", "--yes"), ("show", "k"), ("run", "k", "--", "true")):
        done = holdfast(*arguments)
        assert done.returncode == codes.STORE
        assert "upgrade holdfast" in done.stderr
        assert "`holdfast evict`" not in done.stderr
    assert "newer" in holdfast.json("ls")[0]["fault"]


def test_a_fence_that_cannot_grow(holdfast: Program) -> None:
    """Nobody is granted a fence that others cannot read, and evict mends a free lock too."""
    with holdfast.locks() as locks:
        locks.acquire("k").release()
    with sqlite3.connect(holdfast.file) as file:
        file.execute(
            "UPDATE holdfast_locks SET record = json_set(record, '$.fence', ?)", (LARGEST_FENCE,)
        )
    file.close()
    assert "cannot grow" in holdfast("run", "k", "--", "true").stderr
    assert holdfast("evict", "k", "--yes").returncode == codes.NO
    assert holdfast("run", "k", "--", "true").returncode == 0


def test_purge(holdfast: Program) -> None:
    """Records that were used a moment ago stay; a time that is too short is refused."""
    with holdfast.locks() as locks:
        locks.acquire("k").release()
    assert holdfast("purge").stdout == "Deleted 0 records.\n"
    assert holdfast.json("purge", "k", "--older-than", "2h") == [{"dropped": 0}]
    assert holdfast("purge", "--older-than", "1s").returncode == codes.USAGE


def test_setup(holdfast: Program) -> None:
    """It may be repeated."""
    for _ in range(2):
        done = holdfast("setup")
        assert (done.returncode, done.stdout) == (
            0,
            f"The sqlite store at {holdfast.url} is ready.\n",
        )
    assert holdfast.file.exists()


def test_doctor(holdfast: Program) -> None:
    """It measures, names the facts, and leaves nothing behind."""
    [report] = holdfast.json("doctor", "--trips", "3")
    assert report["ok"]
    checks = {check["name"]: check for check in report["checks"]}
    assert set(checks) == {"connect", "read", "write", "compare", "list", "lease", "delete"}
    assert all(check["trips_ms"]["median"] > 0 for check in checks.values())
    assert abs(report["clock_offset_s"]) < 60
    assert report["facts"]["linearizable"] is True
    assert holdfast.json("ls", "--all") == []
    page = holdfast("doctor").stdout
    assert page.startswith("This store keeps locks, and all is well.\n")
    assert "linearizable" in page
    assert "never put the file on a network file system" in page


@pytest.mark.parametrize("url", ["user:s3cr3t@host", "//user:s3cr3t@host", ":s3cr3t@host/0"])
def test_doctor_does_not_show_a_password(holdfast: Program, url: str) -> None:
    """Not even of what is no URL."""
    for args in (("doctor",), ("doctor", "--json"), ("ls", "--verbose")):
        done = holdfast(*args, HOLDFAST_URL=url)
        assert done.returncode != 0
        assert "s3cr3t" not in done.stdout + done.stderr


def test_doctor_finds_trouble(holdfast: Program) -> None:
    """What does not work is named, with the code for store trouble."""
    done = holdfast("doctor", HOLDFAST_URL=f"sqlite://{holdfast.folder}/no/such/file.db")
    assert done.returncode == codes.STORE
    assert done.stdout.startswith("This store cannot keep locks from here (connect failed): ")
    assert "FAILED" in done.stdout


@pytest.mark.parametrize(
    ("url", "words"),
    [("memory://", "within one process only"), ("null://", "Locking is switched off")],
)
def test_doctor_says_what_a_store_is_not(holdfast: Program, url: str, words: str) -> None:
    """The verdict comes first, in words."""
    assert words in holdfast("doctor", HOLDFAST_URL=url).stdout.partition("\n")[0]


def test_doctor_on_a_store_that_is_not_there(holdfast: Program) -> None:
    """Nobody has connected to what does not answer, and nothing more is tried there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = holdfast("doctor", "--json", HOLDFAST_URL=f"redis://127.0.0.1:{port}")
    assert done.returncode == codes.STORE
    report = json.loads(done.stdout)
    [check] = report["checks"]
    assert (check["name"], check["ok"]) == ("connect", False)
    assert "cannot be reached" in check["detail"]
    assert report["facts"]["name"] == "redis"
    told = holdfast("doctor", HOLDFAST_URL=f"redis://127.0.0.1:{port}").stdout
    assert "Clock: " not in told  # nobody knows


def test_doctor_on_a_store_without_memory(holdfast: Program) -> None:
    """`null://` and `memory://` can be examined as well."""
    assert holdfast("doctor", HOLDFAST_URL="memory://").returncode == 0
    assert holdfast("doctor", HOLDFAST_URL="null://").returncode == 0


class Mute(MemoryStore):
    """A store that can only be read."""

    def swap(self, *args: Any, **options: Any) -> NoReturn:
        raise Unavailable


def test_doctor_passes_nothing_that_it_could_not_try() -> None:
    """Where nothing can be written it does not say that writes are compared."""
    checks = {check.name: check.ok for check in Examination(Mute(), 1).checks()}
    assert checks == {"read": True, "write": False, "list": True, "lease": False}


def test_the_command_line_says_it(holdfast: Program) -> None:
    """`evict --reason` and `show` for people and for programs."""
    with holdfast.locks() as locks:
        lease = locks.acquire("k", owner="ann")
        done = holdfast("evict", "k", "--yes", "--reason", "it [b]hung\x1b", "--operator", "bob")
        assert done.returncode == 0, done.stderr
        with pytest.raises(LeaseLost):
            lease.renew()
    shown = holdfast("show", "k").stdout
    assert "ann was evicted by bob: it [b]hung\\x1b" in shown
    (past,) = holdfast.json("show", "k")[0]["history"]
    assert (past["what"], past["owner"], past["by"]) == ("evicted", "ann", "bob")
    with holdfast.locks() as locks:
        locks.acquire("k", owner="ann")
        assert holdfast("evict", "k", "--yes").returncode == 0
        assert "@" in locks.show("k").history[-1].by
