"""Wake-ups that bring the grant along: the party that frees a lock tells its heir what it wrote.

    BEAT FENCE LAST AT EXPIRES_AT CONTENDED PROOF

Anybody may send wake-ups, and listen to them, so a notice names nothing that is secret and proves
that it comes from the record: PROOF is a digest of the text before it, between two copies of the
heir's token. The token stands in the record and in the memory of the one who waits, and nowhere
else. What proves nothing is a wake-up like any other, a reason to look.

A notice is made only of a record that was surely written. Redis makes notices in a script
(`heir_at` in `scripts/heirs.lua`), others in `notice_of`.
"""

from __future__ import annotations

from holdfast.core.contract import Inherited
from holdfast.core.records import Record
from holdfast.core.rules import find

# Ours have about 130 bytes. What is longer brings nothing, so nobody has to read more.
LONGEST = 256
_FIELDS = 7
_FLAGS = {b"0": False, b"1": True}


def inherited_by(record: Record, token: str) -> Inherited | None:
    """Returns what a write tells a waiter that it wakes; None if it does not grant it the lock."""
    mine = find(record.holders, token)
    if mine is None:
        return None
    return Inherited(
        mine.beat, mine.fence, record.fence, mine.acquired_at, mine.expires_at, bool(record.queue)
    )


def notice_of(record: Record, token: str) -> bytes:
    """Returns the same as text, with its proof; nothing, if there is nothing to tell."""
    told = inherited_by(record, token)
    if told is None:
        return b""
    numbers = b"%d %d %d %d %d" % (told.fence, told.last, told.at, told.expires_at, told.contended)
    text = told.beat.encode() + b" " + numbers
    notice = text + b" " + proof_of(token.encode(), text)
    return notice if len(notice) <= LONGEST else b""


def proof_of(token: bytes, text: bytes) -> bytes:
    """Returns what only a party that knows the token can say of this text."""
    from hashlib import sha1  # brings all of OpenSSL: not for programs that never wait

    return sha1(token + text + token, usedforsecurity=False).hexdigest().encode()


def read_notice(notice: bytes, token: bytes) -> Inherited | None:
    """Returns what a notice says; None, if it is not one or not for this token."""
    fields = notice.split(b" ")
    if len(fields) != _FIELDS or fields[5] not in _FLAGS or len(notice) > LONGEST:
        return None
    if proof_of(token, notice[: -len(fields[6]) - 1]) != fields[6]:
        return None
    beat, fence, last, at, expires_at = fields[:5]
    try:
        return Inherited(
            beat.decode(), int(fence), int(last), int(at), int(expires_at), _FLAGS[fields[5]]
        )
    except ValueError:  # a release that writes them in another way
        return None
