"""What an error of obstore's means for a lock: not done, or perhaps done.

obstore tells the kinds of refusal apart by their class. What happened to a connection is only
in the text behind its generic error: `Signs` reads that text, and `MEANINGS` is the table from
the signs to our errors. What no row knows is perhaps done.

The text has the address of the object in it, and with that a key, which may be any word. So
only what has a frame around it that no address can have is read: a tag of the reply, or the
name of a field in the printed structure of the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from msgspec import Struct
from obstore.exceptions import (
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from holdfast.errors import HoldfastError, Misconfigured, OutcomeUnknown, StoreReadOnly, Unavailable
from holdfast.stores.shortage import ADVICE
from holdfast.stores.url import redact

_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})\b")
# What became of the request below HTTP. `Connect`: there was no connection to send it on.
_HTTP_KIND = re.compile(r"HttpError \{\s*kind: (\w+),")
_TIME = re.compile(r"Time:(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z)")
# Where obstore asks for credentials when it was given none.
_METADATA = re.compile(r"https?://(169\.254\.16|metadata\.google)|latest/api/token")
_TRIED_AGAIN = re.compile(r"\bretries: [1-9]")
_NO_TIME = re.compile(r"source: (Missing|Invalid)LastModified\b")
_UNTRUSTED = re.compile(r"\bInvalidCertificate\(")
_NO_DESCRIPTOR = re.compile(r"\bcode: 2[34],")

_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"}
_DENIED = (PermissionDeniedError, UnauthenticatedError)


class Signs(Struct, frozen=True):
    """What can be known from an error of obstore's."""

    exc: Exception
    text: str
    status: int  # of the reply; 0: there was none
    code: str  # the service's own word for it
    http_kind: str  # what became of the connection; empty: nothing is said of it

    @property
    def unconnected(self) -> bool:
        """Whether nothing was sent, as there was no connection."""
        return not self.status and self.http_kind == "Connect"

    @property
    def denied(self) -> bool:
        """Whether the credentials do not do."""
        return isinstance(self.exc, _DENIED) or self.status in (401, 403)

    @property
    def unsupported(self) -> bool:
        """Whether it is too much for the service, or for obstore."""
        return isinstance(self.exc, (NotSupportedError, NotImplementedError)) or self.status == 501


class Meaning(Struct, frozen=True):
    """A row of the table: what it is known by, what to raise, and what to say."""

    known_by: Callable[[Signs], object]
    reading: type[HoldfastError]
    writing: type[HoldfastError]
    words: str


# The first row that fits counts. A write is only said to be not done, by anything but
# `OutcomeUnknown`, where the service said so, or where there was no connection.
MEANINGS: tuple[Meaning, ...] = (
    # --- the service answered, and did not do it ---
    Meaning(
        lambda signs: signs.code in _NO_BUCKET,
        Misconfigured,
        Misconfigured,
        "There is no bucket or container for {where}: create it, or correct the URL.",
    ),
    Meaning(
        lambda signs: signs.denied and _METADATA.search(signs.text),
        Misconfigured,
        Misconfigured,
        "No credentials were found for {where} ({why}).",
    ),
    Meaning(
        lambda signs: signs.denied,
        Misconfigured,
        StoreReadOnly,
        "{where} does not permit this client to {do} ({why}): check the credentials, "
        "and that they may read, write and list objects there.",
    ),
    Meaning(
        lambda signs: signs.unsupported,
        Misconfigured,
        Misconfigured,
        "{where} has no conditional writes ({why}): `?protocol=last-writer` works "
        "without them, as best effort.",
    ),
    Meaning(
        lambda signs: 300 <= signs.status < 400,
        Misconfigured,
        Misconfigured,
        "The bucket of {where} is in another place ({why}): check the region and the endpoint.",
    ),
    Meaning(
        lambda signs: signs.code == "ExpiredToken",
        Unavailable,
        Unavailable,
        "The credentials for {where} have expired ({why}): renew them.",
    ),
    Meaning(
        lambda signs: signs.status == 429,
        Unavailable,
        Unavailable,
        "{where} refuses requests, because it gets too many ({why}).",
    ),
    # --- there was no connection, so nothing was asked ---
    Meaning(
        lambda signs: signs.unconnected and _UNTRUSTED.search(signs.text),
        Misconfigured,
        Misconfigured,
        "The certificate of {where} cannot be trusted: check the endpoint, and the certificates "
        "of authorities on this machine.",
    ),
    Meaning(
        lambda signs: signs.unconnected and _NO_DESCRIPTOR.search(signs.text),
        Unavailable,
        Unavailable,
        "{where} cannot be reached. " + ADVICE,
    ),
    Meaning(
        lambda signs: signs.unconnected,
        Unavailable,
        Unavailable,
        "{where} cannot be reached ({why}).",
    ),
    # --- there was an answer that does not do ---
    Meaning(
        lambda signs: not signs.status and _NO_TIME.search(signs.text),
        Misconfigured,
        OutcomeUnknown,
        "{where} does not tell when an object was written ({why}): without a `Last-Modified` in "
        "its replies it cannot be used for locks.",
    ),
    # Not this one: S3 says with the status 400 that a request came too slowly, and what it had
    # of it by then is its own affair.
    Meaning(
        lambda signs: (
            400 <= signs.status < 500 and signs.status != 408 and signs.code != "RequestTimeout"
        ),
        Misconfigured,
        Misconfigured,
        "{where} refused a request ({why}).",
    ),
    # --- no answer, half of one, or one that says nothing: all the rest ---
    Meaning(
        lambda signs: True,
        Unavailable,
        OutcomeUnknown,
        "{where} did not say whether it carried out the request ({why}).",
    ),
)


def signs_of(exc: Exception) -> Signs:
    """Read an error."""
    text = str(exc)
    status, code, kind = _STATUS.search(text), _CODE.search(text), _HTTP_KIND.search(text)
    return Signs(
        exc,
        text,
        int(status[1]) if status else 0,
        code[1] if code else "",
        kind[1] if kind else "",
    )


def no_bucket(exc: Exception) -> bool:
    """Whether it is not the object that is missing."""
    return signs_of(exc).code in _NO_BUCKET


def time_in(exc: Exception) -> datetime | None:
    """The service's time, where the text of its error has it."""
    found = _TIME.search(str(exc))
    return datetime.fromisoformat(found[1]) if found else None


def from_obstore(exc: Exception) -> bool:
    """Whether it is about the request, and not a mistake in the code."""
    return isinstance(exc, (BaseError, OSError, NotImplementedError, TimeoutError))


def trouble(exc: Exception, where: str, *, writing: bool) -> HoldfastError:
    """What to raise instead. `where` names the store, without secrets."""
    signs = signs_of(exc)
    meaning = next(row for row in MEANINGS if row.known_by(signs))
    kind = meaning.writing if writing else meaning.reading
    # A store of an application's may try again by itself. What the last try met says nothing of
    # those before.
    if writing and _TRIED_AGAIN.search(signs.text):
        kind = OutcomeUnknown
    do = "write" if writing else "read"
    return kind(meaning.words.format(where=where, why=_summary(signs), do=do))


def _summary(signs: Signs) -> str:
    """A few words out of pages of text that may have a signature in them."""
    if signs.code or signs.status:
        return " ".join(filter(None, [str(signs.status or ""), signs.code]))
    return _WORDS.get(signs.http_kind) or redact(signs.text.partition("\n")[0])[:200]


_WORDS = {
    "Connect": "no connection",
    "Timeout": "no answer in time",
    "Request": "the connection was closed",
    "Interrupted": "the connection broke",
    "Decode": "an answer that cannot be read",
    "Unknown": "an answer that cannot be read",
}
