"""Redis's errors as Holdfast's.

Every error reply means that nothing was changed: the server refused the request, or the
script stopped at its first write. Only a reply that never comes leaves a doubt.
"""

from __future__ import annotations

import re
from typing import Any

from redis import exceptions

from holdfast.errors import (
    ForeignStore,
    HoldfastError,
    Misconfigured,
    OutcomeUnknown,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)
from holdfast.stores.shortage import has_room_for, is_shortage, shortage

OLDEST = "5.0"

# The error replies of a server, as redis-py raises them.
REPLIES = (
    exceptions.ResponseError,
    exceptions.AuthenticationError,
    exceptions.BusyLoadingError,
)
# redis-py takes the code of a reply off its text for these.
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.NoScriptError, "NOSCRIPT"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.AuthenticationError, "NOAUTH"),
)
# What a user needs, beside the keys and channels of the namespace.
RIGHTS = (
    "+eval +evalsha +get +set +setrange +append +del +time +pttl +pexpire +zadd +zrem +zrangebylex "
    "+zrangebyscore +publish +pubsub +subscribe +unsubscribe +ping +select +client +info +scan"
)
RIGHTS_FOR_MORE = (
    "with wait_replicas +wait, in a cluster +cluster|slots +asking, with Sentinel +role"
)

# What is to be seen in an error reply, what it means, and what to say. The first that is found
# decides. Inside a script, old servers put the code somewhere behind "ERR Error running script".
_MEANINGS: tuple[tuple[str, type[HoldfastError], str], ...] = (
    (
        r"\b(NOAUTH|WRONGPASS)\b|unauthenticated|invalid password|invalid username"
        r"|Authentication required|AUTH .*(no password|without any password)",
        Misconfigured,
        "Redis at {where} refused the login: check user name and password ({text}).",
    ),
    (
        r"\bNOPERM\b|no permissions|executing the script can't",
        Misconfigured,
        "The user at Redis {where} lacks a right that Holdfast needs ({text}). Give it the keys "
        f"and channels of the namespace and the commands: ~holdfast:* &holdfast:* {RIGHTS} "
        f"({RIGHTS_FOR_MORE}).",
    ),
    (
        r"\bWRONGTYPE\b",
        ForeignStore,
        "A key that Holdfast would use in Redis at {where} is of another type, and was left "
        "alone: choose another namespace, or delete it ({text}).",
    ),
    (
        r"\bOOM\b",
        StoreFull,
        "Redis at {where} is out of memory: raise maxmemory or free some ({text}).",
    ),
    (
        r"\bREADONLY\b|read only replica|read only slave",
        StoreReadOnly,
        "Redis at {where} is a read-only replica: name its master ({text}).",
    ),
    (
        r"\b(LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|NOREPLICAS|MISCONF)\b"
        r"|max number of clients|is loading the dataset|MASTER is down",
        Unavailable,
        "Redis at {where} cannot serve at the moment: {text}",
    ),
    (
        r"\b(MOVED|ASK|CROSSSLOT)\b",
        Misconfigured,
        "Redis at {where} is a cluster: connect with redis+cluster:// ({text}).",
    ),
    (
        r"(?i)unknown command.*\bsentinel\b|cluster support disabled",
        Misconfigured,
        "Redis at {where} is neither a Sentinel nor a cluster: connect with redis:// ({text}).",
    ),
    (
        r"(?i)unknown command|unknown subcommand|non deterministic",
        Misconfigured,
        f"Redis at {{where}} is too old for Holdfast, which needs {OLDEST} or later (or any "
        "Valkey): {text}",
    ),
)


def _meaning(text: str, where: str) -> HoldfastError | None:
    """What an error reply means, if it is one that is known."""
    for pattern, kind, words in _MEANINGS:
        if re.search(pattern, text):
            return kind(words.format(where=where, text=text))
    return None


def refused(error: Exception, where: str) -> HoldfastError:
    """What an error reply means."""
    text = str(with_code(error))
    return _meaning(text, where) or Misconfigured(f"Redis at {where} refused the request: {text}")


def with_code(reply: Exception) -> exceptions.ResponseError:
    """Returns an error reply with the text that the server sent, beginning with its code."""
    for kind, code in _CODES:
        if isinstance(reply, kind) and code not in str(reply):
            return exceptions.ResponseError(f"{code} {reply}")
    return exceptions.ResponseError(str(reply))


def checked(reply: Any, where: str) -> Any:
    """Returns the reply, or raises what it means if it is an error."""
    if isinstance(reply, exceptions.ResponseError):
        raise refused(reply, where) from reply
    return reply


def not_connected(error: Exception, where: str) -> HoldfastError:
    """What it means that no connection was made: surely nothing was done."""
    if isinstance(error, exceptions.ResponseError | exceptions.AuthenticationError):
        return refused(error, where)
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return Misconfigured(f"The certificate of Redis at {where} cannot be trusted: {text}")
    if (meaning := _meaning(text, where)) is not None:
        return meaning
    if is_shortage(error) or not has_room_for(1):  # a name that is not found may be due to it, too
        return shortage(f"A connection to Redis at {where}")
    return Unavailable(f"Redis at {where} cannot be reached: {text or type(error).__name__}")


def not_sent(error: Exception, where: str) -> HoldfastError:
    """What it means that a request could not be sent whole."""
    return Unavailable(f"The connection to Redis at {where} broke before the request left: {error}")


def closed_meanwhile() -> HoldfastError:
    """What a call meets whose store is closed while it looks for a connection."""
    return Unavailable("The connections to Redis were closed meanwhile.")


def no_answer(error: BaseException, where: str) -> HoldfastError:
    """What it means that a request was sent and no reply came."""
    return OutcomeUnknown(f"Redis at {where} did not answer: {error or type(error).__name__}")


def no_doubt(trouble: HoldfastError) -> HoldfastError:
    """The same about a request that only looks: nothing was done in any case."""
    return Unavailable(str(trouble)) if isinstance(trouble, OutcomeUnknown) else trouble


def can_ask_again(trouble: HoldfastError, looks: bool, is_new: bool) -> bool:
    """Whether a request that failed on one connection may be sent on another at once, so that
    nothing is done twice, and with some hope: a new connection does no better than a new one,
    and a server that was silent for long will be so again."""
    if isinstance(trouble, OutcomeUnknown):
        silent = isinstance(trouble.__cause__, (TimeoutError, exceptions.TimeoutError))
        return looks and not silent
    return not is_new


def too_few_replicas(acknowledged: int, wanted: int, where: str) -> HoldfastError:
    """What it means that the master has written, and too few replicas have said so."""
    return OutcomeUnknown(
        f"Only {acknowledged} of {wanted} replicas of Redis at {where} confirmed the write in "
        f"time: a failover might forget it."
    )
