"""Wake-ups that bring the grant along: whoever frees a lock tells its heir what it has written.

    BEAT FENCE LAST AT EXPIRES_AT CONTENDED PROOF

Anybody may send wake-ups, and listen to them, so a notice names nothing that is secret and proves
that it comes from the record: PROOF is a digest of the text before it, between two copies of the
heir's token. The token stands in the record and in the memory of the one who waits, and nowhere
else. What proves nothing is a wake-up like any other, a reason to look.

Redis makes them in a script (`granted_notice` in `scripts/heirs.lua`), others in `notice_of`.
"""

from __future__ import annotations

from holdfast.core.contract import Inherited

_FIELDS = 7
_FLAGS = {b"0": False, b"1": True}


def proof_of(token: bytes, text: bytes) -> bytes:
    """Returns what only somebody who knows the token can say of this text."""
    from hashlib import sha1  # brings all of OpenSSL: not for programs that never wait

    return sha1(token + text + token, usedforsecurity=False).hexdigest().encode()


def read_notice(notice: bytes, token: bytes) -> Inherited | None:
    """Returns what a notice says; None, if it is not one or not for this token."""
    fields = notice.split(b" ")
    if len(fields) != _FIELDS or fields[5] not in _FLAGS:
        return None
    if proof_of(token, notice[: -len(fields[6]) - 1]) != fields[6]:
        return None
    beat, fence, last, at, expires_at = fields[:5]
    return Inherited(
        beat.decode(), int(fence), int(last), int(at), int(expires_at), _FLAGS[fields[5]]
    )
