"""What a store may say when the network fails: one table per store, and a walk through it.

The rows are faults (see `tests.engines.one_fault`), the columns are kinds of operations:

    read     load, scan, show, list
    write    one swap or one command of the store's
    batch    several of them in one call; each of them has a word of its own
    try      try_acquire, which never waits
    renew    of a lease
    wait     acquire and acquire_all, which wait for a store in trouble
    insist   release, hand_over, take, join and evict, which try again for a while
    purge    of two records

and the words are

    R        it returned, and it was done
    N        `Unavailable`: it was surely not done
    U        `OutcomeUnknown`: it may have been done or not

Whatever a call says is compared with what is in the store (see `tests.stores.walk`): the table
only says which of the true words it may choose.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Iterator

import pytest

from holdfast.runtime import cleaning
from tests.helpers import short_calls
from tests.stores.lane import LATE, REFUSED
from tests.stores.operations import OPERATIONS
from tests.stores.sites import SITES
from tests.stores.walk import IDLE, INSISTS, Walk

pytestmark = pytest.mark.timeout(240)

WORDS = {"R": "returned", "N": "not done", "U": "unknown"}

# A command whose connection broke is sent again, once, and finds what the first one did. Who has
# to connect first and cannot is told so, except where somebody waits or insists.
REDIS = """
                read   write  batch  try    renew  wait   insist purge
refused         N      N U    R N U  N U    U      N U    N U    N U
refused after   N      N U    R N U  N U    U      U      N U    N U
reset before    R N    N U    R U    R N    R      R      R      R N U
closed before   R N    N U    R U    R N    R      R      R      R N U
reset after     R N    N U    R U    R N    R      R      R      R N U
closed          R N    N U    R U    R N    R      R      R      R N U
halved          R N    N U    R U    R N    R      R      R      R N U
late reply      N      N U    R U    R N    R      R      R      N U
late request    N      N U    R U    R N    R      R      R      N U
idle closed     R      R      R      R      R      R      R      R
idle reset      R      R      R      R      R      R      R      R
"""

# A batch is one statement. The last thing that is said on a new connection is a read, which is
# said again on another one.
SQL = """
                read   write  batch  try    renew  wait   insist purge
refused         N      N U    U      N U    U      N U    N U    N U
refused after   N      N U    U      N U    U      N U    N U    N U
reset before    R N    R N U  U      R N    R      R      R      R U
closed before   R N    R N U  U      R N    R      R      R      R U
reset after     R N    R N U  U      R N    R      R      R      R U
closed          R N    R N U  U      R N    R      R      R      R U
halved          R N    R N U  U      R N    R      R      R      R U
late reply      R N    R N U  U      R N    R      R      R      R U
late request    R N    R N U  U      R N    R      R      R      R U
idle closed     R      R      R      R      R      R      R      R
idle reset      R      R      R      R      R      R      R      R
"""

# A read whose connection broke is sent again. A connection is nothing that has to be made ready.
DYNAMODB = """
                read   write  batch  try    renew  wait   insist purge
refused         N      U      R N U  N U    U      N U    N U    N U
refused after   N      U      R N U  N U    U      N U    N U    N U
reset before    R      U      R U    R      R      R      R      R U
closed before   R      U      R U    R      R      R      R      R U
reset after     R      U      R U    R      R      R      R      R U
closed          R      U      R U    R      R      R      R      R U
halved          R      U      R U    R      R      R      R      R U
late reply      N      U      R U    R N    R      R      R      N U
late request    N      U      R U    R N    R      R      R      N U
idle closed     R      R      R      R      R      R      R      R
idle reset      R      R      R      R      R      R      R      R
"""

# Nothing is sent again at this height, so that a claim that never waits ends at its first look.
BLOB = """
                read   write  batch  try    renew  wait   insist purge
refused         N      U      R N U  N U    U      N U    N U    N U
refused after   N      U      R N U  N U    U      N U    N U    N U
reset before    N      U      R U    R N    R      R      R      N U
closed before   N      U      R U    R N    R      R      R      N U
reset after     N      U      R U    R N    R      R      R      N U
closed          N      U      R U    R N    R      R      R      N U
halved          N      U      R U    R N    R      R      R      N U
late reply      N      U      R U    R N    R      R      R      N U
late request    N      U      R U    R N    R      R      R      N U
idle closed     R      R      R      R      R      R      R      R
idle reset      R      R      R      R      R      R      R      R
"""

TABLES = {
    "redis": REDIS,
    "postgresql": SQL,
    "mysql": SQL,
    "dynamodb": DYNAMODB,
    "az": BLOB,
    "s3": BLOB,
    "gs": BLOB,
}


TAKE_TURNS = ("s3", "gs")


def table_of(store: str) -> dict[str, dict[str, frozenset[str]]]:
    """The words, by fault and kind of operation."""
    head, *lines = TABLES[store].strip("\n").splitlines()
    starts = [(kind, head.index(kind)) for kind in head.split()]
    ends = [start for _, start in starts[1:]] + [None]
    return {
        line[: starts[0][1]].strip(): {
            kind: frozenset(WORDS[letter] for letter in line[start:end].split())
            for (kind, start), end in zip(starts, ends, strict=True)
        }
        for line in lines
    }


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What the clients log of all this would hide what failed."""
    caplog.set_level(logging.CRITICAL, "holdfast")


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyMySQL reads all those that the machine trusts for each connection, and needs none here."""
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Nobody insists for long on a server that is gone for good."""
    if fault not in REFUSED:
        return
    short_calls(monkeypatch, INSISTS.get)


@pytest.fixture(autouse=True)
def nothing_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cleaned up later could come between two looks at what a call has done."""
    for call in ("start", "repeat"):
        monkeypatch.setattr(cleaning.Cleaning, call, lambda *_: None)


def walks() -> Iterator[tuple[str, str, str]]:
    """All of them, but not every face of every blob store: these share every line of ours, and
    take turns. Set HOLDFAST_WALK=all to walk through all."""
    for store in SITES:
        for number, fault in enumerate(table_of(store)):
            faces = ["sync", "async"]
            if store in TAKE_TURNS and os.environ.get("HOLDFAST_WALK") != "all":
                faces = [faces[(number + TAKE_TURNS.index(store)) % 2]]
            yield from ((store, face, fault) for face in faces)


@pytest.mark.parametrize(("store", "face", "fault"), list(walks()))
@pytest.mark.usefixtures("little_patience")
def test_words_are_true(store: str, face: str, fault: str) -> None:
    """At every request of every operation: what was said is allowed, and it is what is so."""
    row = table_of(store)[fault]
    seen = Walk(SITES[store](), face, fault, row.__getitem__).run()
    wrong = [str(one) for one in seen if one.wrongs]
    assert not wrong, "\n" + "\n".join(wrong)
    kinds = {one.kind for one in OPERATIONS if face in one.faces}
    assert {one.kind for one in seen} == kinds, "a cell of the table was never walked through"


@pytest.mark.parametrize("store", SITES)
def test_tables_are_whole(store: str) -> None:
    """Every store has a word for every fault and kind of operation, and no read is unknown."""
    table = table_of(store)
    assert set(REFUSED) | set(IDLE) | set(LATE) < set(table) == set(table_of("redis"))
    for row in table.values():
        assert set(row) == {one.kind for one in OPERATIONS}
        assert all(row.values())
        assert "unknown" not in row["read"]
