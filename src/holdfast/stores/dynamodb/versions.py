"""Versions: "TURN.WHO.NONCE".

The nonce is new with every write, and drawn by its writer. TURN counts the writes that may
let somebody in, and WHO says whom the last one of them did: the beginnings of their tokens, or
* for anyone. So whoever waits sees by the version alone whether to look for himself, and of
a long queue only the one whose turn it is does.
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
    """A version that was never there before."""
    turn, who = _turn(version)
    if wake != NOBODY:
        turn, who = turn + 1, _who(wake)
    return f"{turn}.{who}.{os.urandom(NONCE_BYTES).hex()}"


def lets_in(handle: WaitHandle, seen: Entry | None) -> bool:
    """Whether somebody who sleeps since his version may be let in by what is there now."""
    if seen is None:
        return True
    before = _turn(handle.version)[0] if handle.mark is None else handle.mark
    turn, who = _turn(seen.version)
    handle.mark = turn
    if turn == before or is_taken(seen):
        return False
    missed = turn != before + 1  # what came between nobody knows
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
