"""Wake-ups that bring the grant along: what they say, and whom nobody believes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.core.contract import Inherited
from holdfast.core.records import LARGEST_FENCE, Holder, Record, Waiter
from holdfast.stores.waiting.notices import LONGEST, notice_of, proof_of, read_notice

TOKEN = "0123456789abcdef" * 2
HEIR = Holder(TOKEN, 7, "me", "exclusive", 30, 1000, 1030, "a1b2c3d4e5f60718")
NEXT = Waiter("next", "w2", "exclusive", 3, 0, 1003, "p2", lease=30)
RECORD = Record(fence=9, holders=(HEIR,), queue=(NEXT,), updated_at=1000)
TOLD = Inherited(HEIR.beat, 7, 9, 1000, 1030, contended=True)


def read(notice: bytes, token: str = TOKEN) -> Inherited | None:
    """As the one who waits with this token does."""
    return read_notice(notice, token.encode())


def proven(text: bytes) -> bytes:
    """A text that somebody has written who knows the token."""
    return text + b" " + proof_of(TOKEN.encode(), text)


def test_an_heir_reads_what_was_written() -> None:
    """All that a look at the record would have shown it."""
    assert read(notice_of(RECORD, TOKEN)) == TOLD
    alone = replace(RECORD, queue=())
    assert read(notice_of(alone, TOKEN)) == replace(TOLD, contended=False)


def test_the_longest_notice_can_be_read() -> None:
    """Of a lock with the largest numbers that there are."""
    most = LARGEST_FENCE
    heir = replace(HEIR, fence=most, acquired_at=most, expires_at=most)
    notice = notice_of(replace(RECORD, fence=most, holders=(heir,)), TOKEN)
    assert read(notice) == Inherited(HEIR.beat, most, most, most, most, contended=True)


def test_nothing_is_told_to_others() -> None:
    """Neither to who waits behind nor to a stranger."""
    assert notice_of(RECORD, "next") == b""
    assert notice_of(RECORD, "stranger") == b""


def test_a_notice_tells_no_token() -> None:
    """Whoever hears it can do nothing with it."""
    assert TOKEN.encode() not in notice_of(RECORD, TOKEN)
    assert b"next" not in notice_of(RECORD, TOKEN)


@pytest.mark.parametrize("beat", ["with a space", "", "ünïcode", "x" * LONGEST, "\n"])
def test_a_beat_that_another_program_wrote(beat: str) -> None:
    """It is told as it is, or not at all."""
    record = replace(RECORD, holders=(replace(HEIR, beat=beat),))
    assert read(notice_of(record, TOKEN)) in (None, replace(TOLD, beat=beat))


def test_every_byte_counts() -> None:
    """Whatever is changed on the way, left out or added, is no notice any more."""
    notice = notice_of(RECORD, TOKEN)
    for place in range(len(notice)):
        for byte in (b"0", b"1", b" ", b"\xff"):
            altered = notice[:place] + byte + notice[place + 1 :]
            assert altered == notice or read(altered) is None
        assert read(notice[:place]) is None
        assert read(notice[:place] + b"0" + notice[place:]) is None


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"1",  # of the release before
        b" " * 6,
        b"a 1 1 1 1 1 " + proof_of(b"another token", b"a 1 1 1 1 1"),
        notice_of(RECORD, TOKEN) + b" ",
        notice_of(RECORD, TOKEN) + b"\0" * 1000,
        notice_of(RECORD, TOKEN) * 2,
        proven(b"b" * LONGEST + b" 1 1 1 1 1"),
        proven(b"beat one 1 1 1 1"),
        proven(b"\xff 1 1 1 1 1"),
        proven(b"beat 1 1 1 1 2"),
        *(bytes(range(256)) * times for times in (1, 40)),
    ],
)
def test_what_is_no_notice(odd: bytes) -> None:
    """It is a wake-up, and brings nothing."""
    assert read(odd) is None


def test_a_notice_for_another_one() -> None:
    """It was sent to the wrong place."""
    assert read(notice_of(RECORD, TOKEN), "0" * 32) is None
