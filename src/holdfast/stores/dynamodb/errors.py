"""What the service's and botocore's errors mean for a lock.

An error that the service reports with a 4xx code is about a request that it did not carry
out. After a 5xx, a time-out or a broken connection a write may be done or not. And a request
that botocore sent more than once on its own account may have been done by one of the earlier
attempts, whatever the last one was told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from botocore import exceptions as boto
from msgspec import Struct

from holdfast.errors import (
    ForeignStore,
    HoldfastError,
    Misconfigured,
    OutcomeUnknown,
    StoreFull,
    Unavailable,
)
from holdfast.stores.shortage import ADVICE, is_shortage
from holdfast.stores.url import redact

Doing = Literal["reading", "writing", "setting up"]
CONDITION_FAILED = "ConditionalCheckFailedException"
MOST_WORDS = 300


class TableMissing(Misconfigured):
    """There is no such table here: run `holdfast setup`, or check its name and region."""


class NotAllowed(Misconfigured):
    """These credentials may not do this: `holdfast setup --print` shows the policy."""


class Meaning(Struct, frozen=True):
    """What an error stands for, and what to do about it."""

    kind: type[HoldfastError]
    advice: str = ""


_THROTTLED = Meaning(
    Unavailable, "The table has no capacity left: raise it, or switch the table to on-demand."
)
_AGAIN = Meaning(Unavailable)
_EXPIRED = Meaning(Unavailable, "The credentials have expired: renew them.")
_LOGIN = Meaning(
    Misconfigured,
    "Check the credentials (AWS_ACCESS_KEY_ID, AWS_PROFILE, the role), and this machine's clock.",
)
_NO_CREDENTIALS = Meaning(
    Misconfigured,
    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile with ?profile=, or give "
    "this machine a role.",
)
_NO_RIGHTS = Meaning(NotAllowed, "`holdfast setup --print` shows the policy that is needed.")
_NO_TABLE = Meaning(
    TableMissing, "Run `holdfast setup`, or check the table's name and the region (?region=)."
)
_UNTRUSTED = Meaning(
    Misconfigured, "The certificate cannot be trusted: check the endpoint, and AWS_CA_BUNDLE."
)
_OTHER_KEYS = Meaning(
    ForeignStore,
    "The table's primary key is not the one that Holdfast needs, a single string: name it with "
    "?partition_key=, or use another table.",
)
_TOO_LARGE = Meaning(
    StoreFull, "An item has at most 400 KB: there are too many holders and waiters on this key."
)

CODES: Mapping[str, Meaning] = {
    "ProvisionedThroughputExceededException": _THROTTLED,
    "ThrottlingException": _THROTTLED,
    "Throttling": _THROTTLED,
    "RequestLimitExceeded": _THROTTLED,
    "TransactionConflictException": _AGAIN,
    "ReplicatedWriteConflictException": _AGAIN,
    "ResourceInUseException": _AGAIN,
    "LimitExceededException": _AGAIN,
    "ExpiredTokenException": _EXPIRED,
    "ExpiredToken": _EXPIRED,
    "RequestExpired": _EXPIRED,
    "UnrecognizedClientException": _LOGIN,
    "InvalidClientTokenId": _LOGIN,
    "InvalidSignatureException": _LOGIN,
    "SignatureDoesNotMatch": _LOGIN,
    "IncompleteSignatureException": _LOGIN,
    "MissingAuthenticationTokenException": _LOGIN,
    "AccessDeniedException": _NO_RIGHTS,
    "ResourceNotFoundException": _NO_TABLE,
}

# Errors of botocore's own. The request has not left.
_BEFORE: tuple[tuple[type[Exception], Meaning], ...] = (
    (boto.NoCredentialsError, _NO_CREDENTIALS),
    (boto.PartialCredentialsError, _NO_CREDENTIALS),
    (boto.ProfileNotFound, _NO_CREDENTIALS),
    (boto.UnauthorizedSSOTokenError, Meaning(Misconfigured, "Run `aws sso login`.")),
    (boto.TokenRetrievalError, _EXPIRED),
    (boto.CredentialRetrievalError, Meaning(Unavailable, "The credentials cannot be fetched.")),
    (boto.MetadataRetrievalError, Meaning(Unavailable, "The credentials cannot be fetched.")),
    (boto.EndpointConnectionError, Meaning(Unavailable, "Check the region or endpoint.")),
    (boto.ConnectTimeoutError, Meaning(Unavailable)),
    (boto.ProxyConnectionError, Meaning(Unavailable, "Check the proxy.")),
    (boto.ParamValidationError, Meaning(Misconfigured)),
)


def refuse_half(response_dict: Mapping[str, Any] | None, **_: Any) -> None:
    """A reply that broke off is none. botocore does not look at how long it should be, and half
    an item would be no item to it, like anything else that it cannot read: a lock that somebody
    holds would seem to be free."""
    if response_dict is None:  # there is none at all
        return
    body, length = response_dict["body"], response_dict["headers"].get("Content-Length")
    if length and len(body) != int(length):
        raise boto.IncompleteReadError(actual_bytes=len(body), expected_bytes=length)
    whole = _is_json(body) if body else bool(length)
    # Of an error the status says enough: it may be a proxy's, with a page of its own.
    page = response_dict["status_code"] >= 300 and body and (length or body[:1] != b"{")
    if not whole and not page:
        raise boto.IncompleteReadError(actual_bytes=len(body), expected_bytes="more")


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    return True


def code_of(exc: Exception) -> str:
    """The service's name for an error; empty if it is not the service's."""
    return str(exc.response.get("Error", {}).get("Code", "")) if is_answer(exc) else ""  # type: ignore[attr-defined]


def is_answer(exc: Exception) -> bool:
    """Whether the service said this, and not botocore."""
    return isinstance(exc, boto.ClientError)


def was_retried(exc: Exception) -> bool:
    """Whether botocore had sent the request before, on its own account."""
    metadata: Mapping[str, Any] = getattr(exc, "response", {}).get("ResponseMetadata", {})
    return bool(metadata.get("RetryAttempts"))


def trouble(exc: Exception, doing: Doing, place: str, *, sent_twice: bool) -> HoldfastError:
    """An error in our words. The caller raises it `from exc`."""
    meaning = _meaning(exc, doing)
    kind = meaning.kind
    refused = doing == "writing" and is_answer(exc)  # this time: what of the time before?
    if sent_twice and doing != "reading" and (refused or issubclass(kind, Unavailable)):
        kind = OutcomeUnknown
    return kind(f"{place}: {_words(exc)} {meaning.advice}".rstrip())


def _meaning(exc: Exception, doing: Doing) -> Meaning:
    lost = Meaning(Unavailable if doing == "reading" else OutcomeUnknown)
    if isinstance(exc, boto.SSLError):  # of any other kind, it may be the reply that was damaged
        return _UNTRUSTED if "CERTIFICATE_VERIFY_FAILED" in str(exc) else lost
    if isinstance(exc, boto.EndpointConnectionError) and is_shortage(exc):
        return Meaning(Unavailable, ADVICE)
    if not is_answer(exc):
        return next((meaning for kind, meaning in _BEFORE if isinstance(exc, kind)), lost)
    response: Mapping[str, Any] = exc.response  # type: ignore[attr-defined]
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if status >= 500:
        return lost
    if code_of(exc) == "ValidationException" and doing != "setting up":
        # All that can be wrong with what we say of an item: it does not fit into the table.
        return _TOO_LARGE if "size" in str(exc) else _OTHER_KEYS
    return CODES.get(code_of(exc), _NO_RIGHTS if status == 403 else Meaning(Misconfigured))


def _words(exc: Exception) -> str:
    """The first line: what follows may have a signed request in it, with a session token."""
    said = str(exc)
    if is_answer(exc):
        error: Mapping[str, Any] = exc.response.get("Error", {})  # type: ignore[attr-defined]
        said = f"{code_of(exc)}: {error.get('Message', '')}"
    lines = said.strip().splitlines()
    words = redact(lines[0] if lines else type(exc).__name__)[:MOST_WORDS].strip()
    return words if words.endswith((".", "!", "?")) else f"{words}."
