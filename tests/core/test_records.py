"""The codec: what is written comes back, and what is not ours is refused with a reason."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.records import (
    EMPTY,
    FORMAT,
    LARGEST_FENCE,
    SECOND,
    TOMBSTONE,
    Holder,
    NewerFormat,
    Record,
    Undecodable,
    Waiter,
    decode,
    droppable_at,
    encode,
    last_used,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
naturals = st.integers(0, 2**62)
fences = st.integers(0, LARGEST_FENCE)
durations = st.integers(1, 2**53)
positives = st.integers(1, 2**62)
modes = st.sampled_from(["exclusive", "shared", "counted"])
jsons = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
holders = st.builds(
    Holder, texts, fences, texts, modes, durations, naturals, naturals, texts,
    st.none() | positives, st.dictionaries(texts, jsons, max_size=3), st.booleans(),
)  # fmt: skip
waiters = st.builds(
    Waiter, texts, texts, modes, durations, naturals, naturals, texts, st.none() | positives
)
records = st.builds(
    Record, fences,
    st.lists(holders, max_size=3).map(tuple), st.lists(waiters, max_size=3).map(tuple),
    naturals, texts,
)  # fmt: skip


@given(records)
def test_roundtrip(record: Record) -> None:
    """Every record comes back equal, from bytes and from text."""
    raw = encode(record)
    assert decode(raw) == record
    assert decode(raw.decode()) == record
    assert isinstance(json.loads(raw), dict)


@given(records, st.data())
def test_truncation_is_noticed(record: Record, data: st.DataObject) -> None:
    """A record that was cut is never read as another record."""
    raw = encode(record)
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(Undecodable):
        decode(raw[:cut])


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_anything_else_is_refused_in_one_way(raw: bytes | str) -> None:
    """Whatever bytes are there: a record or `Undecodable`, never another error."""
    with suppress(Undecodable):
        assert decode(raw).v == FORMAT


@pytest.mark.parametrize(
    "raw",
    ["", "null", "[]", "7", '"x"', '{"fence":-1}', '{"fence":"1"}', '{"holders":[{}]}',
     '{"v":1,"holders":[{"token":"t"}]}', b"\xff\xfe", '{"fence":1.5}', '{"queue":{}}', "{}"],
)  # fmt: skip
def test_wrong_shapes(raw: bytes | str) -> None:
    """JSON that is no record is refused."""
    with pytest.raises(Undecodable, match="not a lock record"):
        decode(raw)


WHOLE = {"v": FORMAT, "fence": 3, "holders": [], "queue": [], "updated_at": 4}


@pytest.mark.parametrize("name", WHOLE)
def test_every_part_must_be_there(name: str) -> None:
    """A record without its holders is not the record of a free lock."""
    with pytest.raises(Undecodable, match="not a lock record"):
        decode(json.dumps({part: value for part, value in WHOLE.items() if part != name}))


# Deeper than any Python's decoder goes: some give up after 10,000 levels, most after 1,000.
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("raw", [DEEP, f'{{"x":{DEEP}}}', f'{{"v":{DEEP}}}', '{"queue":' * 100_000])
def test_what_is_nested_too_deeply(raw: str) -> None:
    """Text that the decoder gives up on is refused like any other, as text and as bytes."""
    for form in (raw, raw.encode()):
        with pytest.raises(Undecodable, match="not a lock record"):
            decode(form)


@pytest.mark.parametrize("field", ["fence", "updated_at", "ttl", "acquired_at", "expires_at"])
@pytest.mark.parametrize("number", [2**62 + 1, 2**63 - 1, 2**64, 10**320])
def test_absurd_numbers(field: str, number: int) -> None:
    """What no store could count on from is no record, and an eviction can mend it."""
    holder = Holder("t", 1, "o", "exclusive", 1, 1, 1, "b")
    record = json.loads(encode(Record(1, (holder,))))
    (record if field in record else record["holders"][0])[field] = number
    with pytest.raises(Undecodable, match="not a lock record"):
        decode(json.dumps(record))


@pytest.mark.parametrize(("field", "largest"), [("fence", LARGEST_FENCE), ("ttl", 2**53)])
def test_what_is_counted_on_from(field: str, largest: int) -> None:
    """A fence and a ttl leave room for the next grant and its end, in Lua's numbers too."""
    holder = Holder("t", 1, "o", "exclusive", 1, 1, 1, "b")
    for number, readable in ((largest, True), (largest + 1, False)):
        record = json.loads(encode(Record(1, (holder,))))
        record["holders"][0][field] = number
        if readable:
            assert getattr(decode(json.dumps(record)).holders[0], field) == number
        else:
            with pytest.raises(Undecodable, match="not a lock record"):
                decode(json.dumps(record))


@pytest.mark.parametrize("rest", ["", ',"fence":"of another kind"', ',"holders":7'])
def test_newer_format_says_upgrade(rest: str) -> None:
    """A record of a later release says what to do, whatever else has changed in it."""
    with pytest.raises(NewerFormat, match=rf"format {FORMAT + 1} is newer.*upgrade holdfast"):
        decode(f'{{"v":{FORMAT + 1}{rest}}}')


def test_older_format_is_refused() -> None:
    """A format that never was is refused as well."""
    with pytest.raises(Undecodable, match="format is 0"):
        decode(json.dumps({**WHOLE, "v": 0}))


def test_fields_of_tomorrow_are_borne() -> None:
    """An unknown field does not make a record unreadable."""
    assert decode(json.dumps({**WHOLE, "colour": "red"})) == Record(3, updated_at=4)


@given(records)
def test_repr_shows_no_token(record: Record) -> None:
    """Neither holders nor waiters show their token."""
    parties: tuple[Any, ...] = (*record.holders, *record.queue)
    for party in parties:
        marked = replace(party, token="TOKEN-SECRET", beat="BEAT-SECRET")
        assert "SECRET" not in repr(marked)
        assert "SECRET" not in f"{marked}"


def test_record_repr_shows_no_token() -> None:
    """The token that was freed last is not shown either: it may have joined parties."""
    assert "SECRET" not in repr(Record(freed="SECRET"))


@given(records)
def test_last_use(record: Record) -> None:
    """A record is droppable only long after everyone in it has run out."""
    used = last_used(record)
    parties: tuple[Holder | Waiter, ...] = (*record.holders, *record.queue)
    for party in parties:
        assert used >= party.expires_at
        assert used >= record.updated_at + party.ttl
    assert used >= record.updated_at
    assert droppable_at(record) == used + TOMBSTONE


def test_empty_record_is_small() -> None:
    """A free lock costs few bytes."""
    assert len(encode(EMPTY)) < 100
    assert SECOND == 1_000_000
