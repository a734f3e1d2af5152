"""Versions: "TURN.WHO.NONCE".

The writer draws a new NONCE for every write. TURN counts the writes that may let a waiting call
in. WHO says whom the last of these writes may let in: the beginnings of their tokens, or * for
anyone. So a waiting call sees by the version alone whether to try again, and of a long queue only
the one whose turn it is does.
"""

from __future__ import annotations

import os

from holdfast.core.commands import ANYONE, NOBODY, Wake
from holdfast.core.contract import Entry, Version
from holdfast.stores.waiting.handles import WaitHandle, is_taken

NONCE_BYTES = 9
TOKEN_PART = 8
MOST_NAMED = 6
MOST_DIGITS = 18  # of a count; somebody else may have written anything


def next_version(version: Version, wake: Wake) -> str:
    """Returns a version that was never used before."""
    turn, who = _turn(version)
    if wake != NOBODY:
        turn, who = turn + 1, _who(wake)
    return f"{turn}.{who}.{os.urandom(NONCE_BYTES).hex()}"


def lets_in(handle: WaitHandle, seen: Entry | None) -> bool:
    """Whether the record that is there now (None: there is none) may let this waiting call in."""
    if seen is None:
        return True
    before = _turn(handle.version)[0] if handle.mark is None else handle.mark
    turn, who = _turn(seen.version)
    handle.mark = turn
    if turn == before or is_taken(seen):
        return False
    missed = turn != before + 1  # we have not seen whom the writes in between let in
    if missed or who in ("", "*") or handle.token[:TOKEN_PART] in who.split(","):
        handle.found = seen
        return True
    return False


def _turn(version: Version) -> tuple[int, str]:
    turn, _, rest = ("" if version is None else str(version)).partition(".")
    ours = turn.isdecimal() and len(turn) <= MOST_DIGITS
    return (int(turn), rest.partition(".")[0]) if ours else (0, "")


def _who(wake: Wake) -> str:
    if wake == ANYONE or len(wake) > MOST_NAMED:
        return "*"
    return ",".join(token[:TOKEN_PART] for token in wake)
