"""Tickets: they come back whole, or not at all."""

from __future__ import annotations

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.tickets import Kind, Ticket, seal, unseal
from holdfast.errors import BadTicket

KINDS: tuple[Kind, ...] = ("share", "hand-over")
tickets = st.builds(
    Ticket,
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=512),
    st.text(string.hexdigits.lower(), min_size=32, max_size=32),
    st.integers(0, 2**62),
    st.integers(1, 2**62),
    st.booleans(),
)
kinds = st.sampled_from(KINDS)
TICKET = Ticket("pipeline:orders", "0123456789abcdef" * 2, 1_700_000_000_000_000, 30_000_000)


@given(kinds, tickets)
def test_roundtrip(kind: Kind, ticket: Ticket) -> None:
    """A ticket says what it was made to say, and is fit for an environment variable."""
    text = seal(kind, ticket)
    assert unseal(kind, text) == ticket
    assert unseal(kind, f"  {text}\n") == ticket
    assert text.isascii()
    assert text.isprintable()
    assert not set(text) & set(" \"'$`\\&;|<>=")


def test_it_is_short() -> None:
    """About a hundred characters for a usual key; never more than a variable can hold."""
    assert len(seal("share", TICKET)) <= 110
    longest = Ticket("k" * 512, TICKET.token, 2**62, 2**62, True)
    assert len(seal("share", longest)) < 1000


@given(kinds, tickets)
def test_other_kind_says_what_to_call(kind: Kind, ticket: Ticket) -> None:
    """A ticket of the other kind is refused with the name of the right call."""
    other: Kind = "hand-over" if kind == "share" else "share"
    call = "join" if kind == "share" else "take"
    with pytest.raises(BadTicket, match=rf"use it with {call}\(\)"):
        unseal(other, seal(kind, ticket))


@given(kinds, tickets, st.data())
def test_truncation(kind: Kind, ticket: Ticket, data: st.DataObject) -> None:
    """A ticket that was cut is refused, wherever it was cut."""
    text = seal(kind, ticket)
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(BadTicket):
        unseal(kind, text[:cut])


@given(kinds, tickets, st.data())
def test_changed_character(kind: Kind, ticket: Ticket, data: st.DataObject) -> None:
    """A changed character is noticed, or changes nothing (the last one has spare bits)."""
    text = seal(kind, ticket)
    at = data.draw(st.integers(0, len(text) - 1))
    put = data.draw(st.sampled_from(string.printable))
    changed = text[:at] + put + text[at + 1 :]
    try:
        read = unseal(kind, changed)
    except BadTicket:
        return
    assert read == ticket


def test_every_bit_of_the_body() -> None:
    """No single flipped bit in what is inside gets through."""
    from base64 import urlsafe_b64decode, urlsafe_b64encode

    text = seal("share", TICKET)
    body = urlsafe_b64decode(text[5:] + "=" * (-len(text[5:]) % 4))
    for bit in range(8 * len(body)):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadTicket):
            unseal("share", "hf1s." + urlsafe_b64encode(bytes(flipped)).decode().rstrip("="))


@pytest.mark.parametrize(
    "text", ["", "x", "hf1s.", "hf1s.====", "hf1s.é", "hf2s.AAAA", "hf1s.AAAA", "\0"]
)
def test_what_is_no_ticket(text: str) -> None:
    """Anything else is refused, and the message says what may have happened."""
    with pytest.raises(BadTicket, match="not a Holdfast ticket"):
        unseal("share", text)


@pytest.mark.parametrize("thing", [None, 5, b"hf1s.AAAA", ["x"]])
def test_what_is_no_string(thing: object) -> None:
    """A ticket is a string."""
    with pytest.raises(BadTicket, match=f"not {type(thing).__name__}"):
        unseal("share", thing)  # type: ignore[arg-type]


def test_foreign_body_with_a_sound_checksum() -> None:
    """Something else under our prefix, though it has a checksum, is refused."""
    from base64 import urlsafe_b64encode
    from zlib import crc32

    draw = random.Random(1)
    for size in range(40):
        body = draw.randbytes(size)
        sealed = urlsafe_b64encode(crc32(body).to_bytes(4, "big") + body).decode().rstrip("=")
        with pytest.raises(BadTicket):
            unseal("hand-over", f"hf1h.{sealed}")


def test_secrets_are_not_shown() -> None:
    """Neither the object nor an error shows the token or the ticket."""
    text = seal("share", TICKET)
    assert TICKET.token not in repr(TICKET)
    for wrong in (text[:-3], text.replace("hf1s", "hf1h"), "x" + text):
        with pytest.raises(BadTicket) as error:
            unseal("share", wrong)
        assert text[6:-6] not in str(error.value)
        assert error.value.__cause__ is None
