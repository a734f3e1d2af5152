"""Exit codes. Those from 64 to 78 mean what sysexits.h says they mean, or nearly so."""

from __future__ import annotations

from holdfast.errors import Busy, HoldfastError, LeaseLost, Refused, UsageError

OK = 0
NO = 1
USAGE = 64
STORE = 69
BUG = 70
BUSY = 75
LOST = 76
NOT_EXECUTABLE = 126
NOT_FOUND = 127
SIGNALLED = 128  # and the signal's number

MEANINGS: dict[str, str] = {
    str(OK): "done, or skipped (`--busy skip`); `run` exits with the code of its command",
    str(NO): "nothing was done: there was nothing to evict, or it was declined",
    str(USAGE): "usage: an option, a key, a ticket or a URL that cannot work",
    str(STORE): "the store cannot be reached or cannot be used",
    str(BUG): "an error in Holdfast itself: please report it",
    str(BUSY): "busy: somebody else holds the lock (`run --busy-code` chooses another code)",
    str(LOST): "the lease was lost and the command was stopped, or a ticket's lease is gone",
    str(NOT_EXECUTABLE): "the command cannot be executed",
    str(NOT_FOUND): "the command was not found",
    f"{SIGNALLED}+n": "the command, or Holdfast while it waited, was ended by signal n",
}


def code_of(error: HoldfastError) -> int:
    """Returns the exit code for an error."""
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, Busy):
        return BUSY
    if isinstance(error, (LeaseLost, Refused)):
        return LOST
    return STORE


def table() -> str:
    """Returns all codes for the help; `\\b` keeps click from filling the lines."""
    lines = (f"  {code:>5}  {meaning}" for code, meaning in MEANINGS.items())
    return "\b\nExit codes:\n" + "\n".join(lines)
