"""What a database's errors mean for a lock: surely not done, not known, or never will be.

How it is decided:

    what happened                                  connecting     reading   writing
    the server refused the statement, with a code  the tables POSTGRES_CODES and MYSQL_CODES
    the server ended the session (`ENDED`)         Unavailable    Broken    OutcomeUnknown
    the connection broke, or no answer came        Unavailable    Broken    OutcomeUnknown
    this process has no file descriptor left       NoMore         as above  as above
    the driver cannot make sense of what it got    as above       Broken    OutcomeUnknown
    an option or a value makes no sense            Misconfigured  always

1. A code is about a statement that was not carried out: each is a transaction of its own. If
   the session ended with it, that is not sure of a write.
2. Whatever else fails once a write may have left is unknown. Only what cannot even be put into
   bytes has surely not left.
3. What was read and got lost (`Broken`) is asked again, once, on another connection.
"""

from __future__ import annotations

import re
import ssl
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from holdfast.errors import (
    ForeignStore,
    HoldfastError,
    Misconfigured,
    MissingDriver,
    OutcomeUnknown,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)
from holdfast.stores.shortage import ADVICE, out_of_descriptors
from holdfast.stores.url import redact

Doing = Literal["connecting", "reading", "writing"]
Code = str | int | None


class AlreadyThere(HoldfastError):
    """A row with this key is there already."""


class NotAllowed(Misconfigured):
    """The database user may not do this: grant it SELECT, INSERT, UPDATE and DELETE on the
    table, or CREATE on its schema for `holdfast setup`."""


class Again(Unavailable):
    """The database rolled the statement back in favour of another one. Try again."""


class Locked(Unavailable):
    """Somebody else keeps a row locked, in a transaction of their own. Nothing was written."""


class Broken(Unavailable):
    """The connection broke before the answer came. Nothing was being written."""


class NoMore(Unavailable):
    """Another connection cannot be had at the moment; those that are open go on working."""


class TableMissing(Misconfigured):
    """The table of the locks is gone: run `holdfast setup`, and let no program drop it."""


class Meaning(Struct, frozen=True):
    """What an error stands for, and what to do about it."""

    kind: type[HoldfastError]
    advice: str = ""
    ends: bool = False  # the connection is of no more use


_LOGIN = Meaning(Misconfigured, "Check user and password in the URL, and the user's rights.")
_NO_DATABASE = Meaning(Misconfigured, "Check the database's name in the URL, or create it.")
_NO_RIGHTS = Meaning(
    NotAllowed, "Grant the user SELECT, INSERT, UPDATE and DELETE on the table of the locks."
)
_NO_TABLE = Meaning(
    TableMissing, "The table of the locks was dropped while it was in use: connect again."
)
_OTHER_TABLE = Meaning(
    ForeignStore, "This is not the table that Holdfast made: name another one with ?table="
)
# The address may stand for another server by now, and only a new connection leads there.
_READ_ONLY = Meaning(
    StoreReadOnly, "This is a standby, or writing is switched off: connect to the primary.", True
)
_FULL = Meaning(StoreFull, "Free some space on the database's disk.")
_CROWDED = Meaning(NoMore, "The server has no connection left for us.")
_NO_DESCRIPTORS = Meaning(NoMore, ADVICE)
_AGAIN = Meaning(Again)
_NOT_NOW = Meaning(Unavailable)
_LOCKED = Meaning(Locked)
_CONFIG = Meaning(Misconfigured)
# The session is over. What it was doing then may be done or not.
ENDED = Meaning(OutcomeUnknown, ends=True)
# The server had ended the session before the statement came.
_ENDED_BEFORE = Meaning(Again, ends=True)
# Something between us and the server changed sessions under a prepared statement.
_NOT_PREPARED = Meaning(Again, ends=True)

Codes: TypeAlias = Mapping[Code, Meaning]


def _by_code(*rows: tuple[Meaning, tuple[Code, ...]]) -> Codes:
    return {code: meaning for meaning, codes in rows for code in codes}


POSTGRES_CODES = _by_code(
    (Meaning(AlreadyThere), ("23505",)),
    (_AGAIN, ("40001", "40P01")),
    (_LOCKED, ("55P03",)),
    (_NOT_NOW, ("53200", "53400", "57014", "57P03")),
    (_CROWDED, ("53300",)),
    (_FULL, ("53100",)),
    (_READ_ONLY, ("25006",)),
    (_LOGIN, ("28000", "28P01")),
    (_NO_DATABASE, ("3D000",)),
    (Meaning(Misconfigured, "Create the schema, or name another one with ?schema="), ("3F000",)),
    (_NO_RIGHTS, ("42501",)),
    (_NO_TABLE, ("42P01",)),
    (_OTHER_TABLE, ("42703", "42804", "42P10")),
    (_CONFIG, ("config",)),
    (_NOT_PREPARED, ("26000", "42P05")),
    (ENDED, ("57P01", "57P02", "57P05")),
)

MYSQL_CODES = _by_code(
    (Meaning(AlreadyThere), (1062,)),
    (_AGAIN, (1213, 1412)),
    (_LOCKED, (1205,)),
    (_NOT_NOW, (1041, 1317, 1969, 3024, 3572)),
    (_NOT_NOW, (1047,)),  # Galera: this node is not ready
    (_CROWDED, (1040, 1129, 1203, 1226)),
    (_FULL, (1021, 1114)),
    (_READ_ONLY, (1290, 1792, 1836)),
    (_LOGIN, (1044, 1045, 1130)),
    (_NO_DATABASE, (1049,)),
    (Meaning(Misconfigured, "Name the database in the URL: mysql://user@host/DATABASE"), (1046,)),
    (_NO_RIGHTS, (1142, 1143, 1227)),
    (_NO_TABLE, (1146,)),
    (_OTHER_TABLE, (1054, 1364, 3819, 4025)),
    # The driver's own: TLS is asked for and there is none; a way to log in that it does not know.
    (_CONFIG, (2026, 2059, 2061)),
    (
        Meaning(Misconfigured, "The server's certificate cannot be trusted: check ssl_ca."),
        ("certificate",),
    ),
    (ENDED, (1026, 1053, 1180)),  # at a shutdown, or during COMMIT
    (_ENDED_BEFORE, (4031,)),  # wait_timeout was over
)

# While connecting libpq has no code for us, only words. What is quoted in them is a host, a user or
# a database, whose name may be anything.
_NAMED = r"""(?<!\w)(["']).*?\1"""
_POSTGRES_WORDS: tuple[tuple[str, Code], ...] = (
    (r"password|authentication|pg_hba\.conf|role .* does not exist|not permitted to log", "28000"),
    (r"database .* does not exist|no such database", "3D000"),
    (r"permission denied for database", "42501"),
    (r"too many (clients|connections)|connection slots|no more connections", "53300"),
    (r"starting up|shutting down|recovery mode|not yet accepting", "57P03"),
    (r"SSL was required|certificate|unsupported startup parameter|read-write|read-only", "config"),
)


class Diagnosis(Struct, frozen=True):
    """How a family of databases tells what is wrong."""

    codes: Codes
    code_of: Callable[[BaseException, Doing], Code]
    is_broken: Callable[[Code], bool]


def _postgres_code(error: BaseException, doing: Doing) -> Code:
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if code is None and doing == "connecting":
        said = re.sub(_NAMED, "", str(error))
        for words, meant in _POSTGRES_WORDS:
            if re.search(words, said, re.I):
                return meant
    return code


def _postgres_broken(code: Code) -> bool:
    return isinstance(code, str) and code.startswith("08")


def _mysql_code(error: BaseException, doing: Doing) -> Code:
    if isinstance(error.__context__, ssl.SSLCertVerificationError):
        return "certificate"
    code = error.args[0] if error.args and "Error" in _kinds(error) else None
    return code if isinstance(code, int) and code else None


def _mysql_broken(code: Code) -> bool:
    # 2000 and up are the client's own; 115x and 1927 are about the connection.
    own = range(2000, 3000)
    return code in own or code in {1152, 1156, 1157, 1158, 1159, 1160, 1161, 1927}


_WHEN_BROKEN: Mapping[Doing, Meaning] = {
    "connecting": Meaning(Unavailable, ends=True),
    "reading": Meaning(Broken, ends=True),
    "writing": Meaning(OutcomeUnknown, ends=True),
}
_MISTAKE = Meaning(Misconfigured, ends=True)

POSTGRES = Diagnosis(POSTGRES_CODES, _postgres_code, _postgres_broken)
MYSQL = Diagnosis(MYSQL_CODES, _mysql_code, _mysql_broken)


class PoolIsEmpty(Exception):
    """All connections of a pool of ours are in use."""


def _of_sqlalchemy(name: str) -> tuple[type[Any], ...]:
    """Returns a kind of error of SQLAlchemy's; none if nobody has imported it."""
    module = sys.modules.get("sqlalchemy.exc")
    return () if module is None else (getattr(module, name),)


def trouble(
    exc: Exception, diagnosis: Diagnosis, doing: Doing, place: str, *, gone: bool = False
) -> tuple[HoldfastError, bool]:
    """The driver's error in our words, and whether the connection is of no more use.

    `gone` says that it surely is. The caller raises the error `from cause(exc)`.
    """
    if isinstance(exc, (PoolIsEmpty, *_of_sqlalchemy("TimeoutError"))):
        full = "all connections of the pool are in use; make it larger with ?pool_size="
        return Unavailable(f"{place}: {full}"), False
    error = cause(exc)
    said = redact(str(error.args[-1] if error.args else error)).strip().splitlines()
    unsaid = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    words = f"{place}: {said[0] if said else unsaid}"
    if isinstance(error, RuntimeError) and "cryptography" in str(error):
        return MissingDriver(f"{words} (pip install 'holdfast[mysql]')"), True
    meaning = meaning_of(exc, diagnosis, doing, gone=gone)
    advised = f"{words.rstrip('.')}. {meaning.advice}" if meaning.advice else words
    return meaning.kind(advised), gone or meaning.ends


def meaning_of(exc: Exception, diagnosis: Diagnosis, doing: Doing, *, gone: bool) -> Meaning:
    """The line and the column of the table above."""
    code = diagnosis.code_of(cause(exc), doing)
    told = diagnosis.codes.get(code)
    if told is _ENDED_BEFORE:
        return told
    if told is not None and told is not ENDED and not (gone and doing == "writing"):
        return told
    if doing == "connecting" and told is None and out_of_descriptors(exc):
        return _NO_DESCRIPTORS
    if gone or told is not None or _is_broken(exc, code, diagnosis, doing):
        return _WHEN_BROKEN[doing]
    return _MISTAKE


# What a driver says of an option that it does not know, or of a value that makes no sense.
_MISTAKES = (TypeError, ValueError, RuntimeError)
_OWN_MISTAKES = {"ProgrammingError", "DataError", "NotSupportedError"}


def _is_broken(exc: Exception, code: Code, diagnosis: Diagnosis, doing: Doing) -> bool:
    """Whether this is about the connection, or may be, and not about the statement."""
    if isinstance(exc, _of_sqlalchemy("DBAPIError")) and exc.connection_invalidated:
        return True
    if code is not None:
        return diagnosis.is_broken(code)
    error = cause(exc)
    kinds = _kinds(error)
    if "Error" in kinds:  # of the driver's own: the names are those of PEP 249
        return kinds.isdisjoint(_OWN_MISTAKES)
    if doing == "connecting":
        return not isinstance(error, _MISTAKES)
    if doing == "writing":
        return not isinstance(error, UnicodeEncodeError)
    return isinstance(error, (OSError, EOFError, *_of_sqlalchemy("InvalidRequestError")))


def _kinds(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def cause(exc: Exception) -> BaseException:
    """The driver's own exception."""
    wrapped: Any = exc.orig if isinstance(exc, _of_sqlalchemy("StatementError")) else None
    return exc if wrapped is None else wrapped


def is_foreign(exc: Exception) -> bool:
    """Whether this only came in the middle of the driver: a signal's handler may raise anything at
    any instruction, as a soft time limit does. That is the caller's, and no trouble of the store's.

    What drivers raise is Python's own, SQLAlchemy's or ours, or derives from PEP 249's `Error`.
    """
    if isinstance(exc, (PoolIsEmpty, HoldfastError, *_of_sqlalchemy("SQLAlchemyError"))):
        return False
    mro = type(exc).__mro__
    kinds = mro[: mro.index(Exception)]
    return not any(kind.__name__ == "Error" or _is_pythons(kind) for kind in kinds)


def _is_pythons(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in sys.stdlib_module_names
