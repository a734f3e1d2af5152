"""obstore's errors in our words.

Whether a request was carried out is what matters. obstore tells the kinds of refusal apart;
what happened to a connection is only in the text behind its generic error.
"""

from __future__ import annotations

import re
from datetime import datetime

from obstore.exceptions import (
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from holdfast.errors import HoldfastError, Misconfigured, OutcomeUnknown, StoreReadOnly, Unavailable
from holdfast.stores.url import redact

_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|FilesystemNotFound|bucket does not exist")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
_TIME = re.compile(r"Time:(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z)")
# Where obstore asks for credentials when it was given none.
_METADATA = re.compile(r"169\.254\.16|metadata\.google|latest/api/token")
# It did not get as far as a connection, so nothing was asked of the service.
_NOT_SENT = re.compile(r"kind: Connect|dns error|tcp connect error")
_TRIED_AGAIN = re.compile(r"\bretries: [1-9]")
_NO_TIME = re.compile(r"MissingLastModified|[Ll]ast-?\s?[Mm]odified")
_BUSY = {408, 429, 500, 502, 503, 504}
# What S3 says with the status 400, and what may be otherwise the next time.
_PASSING = {"RequestTimeout", "ExpiredToken"}


def no_bucket(exc: Exception) -> bool:
    """Whether it is not the object that is missing."""
    return _NO_BUCKET.search(str(exc)) is not None


def time_in(exc: Exception) -> datetime | None:
    """The service's time, where the text of its error has it."""
    found = _TIME.search(str(exc))
    return datetime.fromisoformat(found[1]) if found else None


def trouble(exc: Exception, where: str, *, writing: bool) -> HoldfastError:
    """What to raise instead. `where` names the store, without secrets."""
    found = _last_try(exc, where, writing=writing)
    # A store of an application's may try again by itself. What the last try met says nothing of
    # those before.
    if writing and _TRIED_AGAIN.search(str(exc)):
        return OutcomeUnknown(str(found))
    return found


def _last_try(exc: Exception, where: str, *, writing: bool) -> HoldfastError:
    text = str(exc)
    why = _summary(text)
    if no_bucket(exc):
        return Misconfigured(
            f"There is no bucket or container for {where}: create it, or correct the URL."
        )
    status = _status(text)
    if isinstance(exc, (PermissionDeniedError, UnauthenticatedError)) or status in (401, 403):
        if _METADATA.search(text):
            return Misconfigured(f"No credentials were found for {where} ({why}).")
        kind, do = (StoreReadOnly, "write") if writing else (Misconfigured, "read")
        return kind(
            f"{where} does not let us {do} ({why}): check the credentials, and that they may "
            f"read, write and list objects there."
        )
    if isinstance(exc, (NotSupportedError, NotImplementedError)) or status == 501:
        return Misconfigured(
            f"{where} has no conditional writes ({why}): `?protocol=last-writer` does without, "
            f"as far as that can be done."
        )
    if _NO_TIME.search(text) and status is None:
        return Misconfigured(
            f"{where} does not tell when an object was written ({why}): without a "
            f"`Last-Modified` in its replies it cannot be used for locks."
        )
    if _NOT_SENT.search(text):
        return Unavailable(f"{where} cannot be reached ({why}).")
    if status is not None and 400 <= status < 500 and not _may_pass(status, text):
        return Misconfigured(f"{where} refused a request ({why}).")
    if writing:
        return OutcomeUnknown(f"{where} gave no answer that says whether it wrote ({why}).")
    return Unavailable(f"{where} gave no answer ({why}).")


def from_obstore(exc: Exception) -> bool:
    """Whether it is about the request, and not a mistake in the code."""
    return isinstance(exc, (BaseError, OSError, NotImplementedError, TimeoutError))


def _status(text: str) -> int | None:
    found = _STATUS.search(text)
    return int(found[1]) if found else None


def _may_pass(status: int, text: str) -> bool:
    code = _CODE.search(text)
    return status in _BUSY or (code is not None and code[1] in _PASSING)


def _summary(text: str) -> str:
    """A few words out of pages of text that may have a signature in them."""
    code, status = _CODE.search(text), _status(text)
    if code or status:
        return " ".join(filter(None, [str(status or ""), code[1] if code else ""]))
    kind = re.search(r"kind: (\w+)", text)
    if kind:
        return {"Connect": "no connection", "Timeout": "no answer in time"}.get(kind[1], kind[1])
    return redact(text.partition("\n")[0])[:200]
