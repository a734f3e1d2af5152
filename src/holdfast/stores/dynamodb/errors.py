"""What the service's and botocore's errors mean for a lock.

`MEANINGS` is the table. An error that the service reports with a 4xx code is about a request that
it did not carry out. After a 5xx, a time-out or a broken connection a write may be done or not.
And if botocore has sent a request more than once by its own decision, an earlier attempt may have
been carried out, whatever the answer to the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
from holdfast.stores.dynamodb.protocol import Doing
from holdfast.stores.shortage import ADVICE, is_shortage
from holdfast.stores.url import redact

CONDITION_FAILED = "ConditionalCheckFailedException"
INVALID = "ValidationException"
MOST_WORDS = 300


class TableMissing(Misconfigured):
    """There is no such table here: run `holdfast setup`, or check its name and region."""


class NotAllowed(Misconfigured):
    """These credentials may not do this: `holdfast setup --print` shows the policy."""


class Meaning(Struct, frozen=True):
    """A row of the table: what it is known by, what to raise, and what to do about it."""

    known_by: frozenset[str] | tuple[type[Exception], ...] | Callable[[Exception], bool]
    reading: type[HoldfastError]
    writing: type[HoldfastError]
    advice: str = ""

    def fits(self, exc: Exception) -> bool:
        """Whether it is this: by the service's code, by botocore's class, or by a look at it."""
        if isinstance(self.known_by, frozenset):
            return code_of(exc) in self.known_by
        if isinstance(self.known_by, tuple):
            return isinstance(exc, self.known_by)
        return self.known_by(exc)


def _codes(*codes: str) -> frozenset[str]:
    return frozenset(codes)


# The first row that fits counts. A write is only said to be not done, by anything but
# `OutcomeUnknown`, where the service said so, or where the request had not left.
MEANINGS: tuple[Meaning, ...] = (
    # --- the service failed, and may have carried the request out before ---
    Meaning(lambda exc: is_answer(exc) and status_of(exc) >= 500, Unavailable, OutcomeUnknown),
    # --- the service answered, and did not do it ---
    Meaning(
        _codes(
            "ProvisionedThroughputExceededException",
            "ThrottlingException",
            "Throttling",
            "RequestLimitExceeded",
        ),
        Unavailable,
        Unavailable,
        "The table has no capacity left: raise it, or switch the table to on-demand.",
    ),
    Meaning(
        _codes(
            "TransactionConflictException",
            "ReplicatedWriteConflictException",
            "ResourceInUseException",
            "LimitExceededException",
        ),
        Unavailable,
        Unavailable,
    ),
    Meaning(
        _codes("ExpiredTokenException", "ExpiredToken", "RequestExpired"),
        Unavailable,
        Unavailable,
        "The credentials have expired: renew them.",
    ),
    Meaning(
        _codes(
            "UnrecognizedClientException",
            "InvalidClientTokenId",
            "InvalidSignatureException",
            "SignatureDoesNotMatch",
            "IncompleteSignatureException",
            "MissingAuthenticationTokenException",
        ),
        Misconfigured,
        Misconfigured,
        "Check the credentials (AWS_ACCESS_KEY_ID, AWS_PROFILE, the role), and this machine's "
        "clock.",
    ),
    Meaning(
        _codes("ResourceNotFoundException"),
        TableMissing,
        TableMissing,
        "Run `holdfast setup`, or check the table's name and the region (?region=).",
    ),
    # All that can be wrong with what we say of an item: it does not fit into the table. Of a
    # table's description more can be wrong: see `trouble`.
    Meaning(
        lambda exc: code_of(exc) == INVALID and "size" in str(exc),
        StoreFull,
        StoreFull,
        "An item has at most 400 KB: there are too many holders and waiters on this key.",
    ),
    Meaning(
        _codes(INVALID),
        ForeignStore,
        ForeignStore,
        "The table's primary key is not the one that Holdfast needs, a single string: name it "
        "with ?partition_key=, or use another table.",
    ),
    Meaning(
        lambda exc: code_of(exc) == "AccessDeniedException" or status_of(exc) == 403,
        NotAllowed,
        NotAllowed,
        "`holdfast setup --print` shows the policy that is needed.",
    ),
    Meaning((boto.ClientError,), Misconfigured, Misconfigured),
    # --- botocore did not send it ---
    Meaning(
        (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ProfileNotFound),
        Misconfigured,
        Misconfigured,
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile with ?profile=, or give "
        "this machine a role.",
    ),
    Meaning(
        (boto.UnauthorizedSSOTokenError,), Misconfigured, Misconfigured, "Run `aws sso login`."
    ),
    Meaning(
        (boto.TokenRetrievalError,),
        Unavailable,
        Unavailable,
        "The credentials have expired: renew them.",
    ),
    Meaning(
        (boto.CredentialRetrievalError, boto.MetadataRetrievalError),
        Unavailable,
        Unavailable,
        "The credentials cannot be fetched.",
    ),
    Meaning(
        lambda exc: isinstance(exc, boto.EndpointConnectionError) and is_shortage(exc),
        Unavailable,
        Unavailable,
        ADVICE,
    ),
    Meaning(
        (boto.EndpointConnectionError,), Unavailable, Unavailable, "Check the region or endpoint."
    ),
    Meaning((boto.ConnectTimeoutError,), Unavailable, Unavailable),
    Meaning((boto.ParamValidationError,), Misconfigured, Misconfigured),
    Meaning(
        lambda exc: isinstance(exc, boto.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(exc),
        Misconfigured,
        Misconfigured,
        "The certificate cannot be trusted: check the endpoint, and AWS_CA_BUNDLE.",
    ),
    # --- no answer, or half of one: all the rest ---
    # Some versions of urllib3 say this of any connection through a proxy that breaks.
    Meaning((boto.ProxyConnectionError,), Unavailable, OutcomeUnknown, "Check the proxy."),
    Meaning((Exception,), Unavailable, OutcomeUnknown),
)
_REFUSED = Meaning((boto.ClientError,), Misconfigured, Misconfigured)


def refuse_half(response_dict: Mapping[str, Any] | None, **_: Any) -> None:
    """Refuse a reply that broke off. botocore does not check its length, and takes half an item,
    like anything else that it cannot read, for no item: a lock that is held would seem free."""
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
    """Returns the service's code for an error; empty if the error is not the service's."""
    return str(_answer(exc).get("Error", {}).get("Code", ""))


def is_answer(exc: Exception) -> bool:
    """Whether the service reported this error, and not botocore."""
    return isinstance(exc, boto.ClientError)


def was_retried(exc: Exception) -> bool:
    """Whether botocore had sent the request before, by its own decision."""
    return bool(_answer(exc).get("ResponseMetadata", {}).get("RetryAttempts"))


def _answer(exc: Exception) -> Mapping[str, Any]:
    return exc.response if isinstance(exc, boto.ClientError) else {}


def status_of(exc: Exception) -> int:
    """Returns the status of the service's answer; 0 if there was none."""
    return int(_answer(exc).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def trouble(exc: Exception, doing: Doing, where: str, *, sent_twice: bool) -> HoldfastError:
    """Returns the error to raise instead; the caller raises it `from exc`."""
    meaning = _meaning(exc, doing)
    kind = meaning.reading if doing == "reading" else meaning.writing
    refused = doing == "writing" and is_answer(exc)  # the attempt before may have been done
    if sent_twice and doing != "reading" and (refused or issubclass(kind, Unavailable)):
        kind = OutcomeUnknown
    return kind(f"{where}: {_words(exc)} {meaning.advice}".rstrip())


def _meaning(exc: Exception, doing: Doing) -> Meaning:
    if doing == "setting up" and code_of(exc) == INVALID and status_of(exc) < 500:
        return _REFUSED
    return next(row for row in MEANINGS if row.fits(exc))


def _words(exc: Exception) -> str:
    """The first line: what follows may have a signed request in it, with a session token."""
    said = str(exc)
    if is_answer(exc):
        said = f"{code_of(exc)}: {_answer(exc).get('Error', {}).get('Message', '')}"
    lines = said.strip().splitlines()
    words = redact(lines[0] if lines else type(exc).__name__)[:MOST_WORDS].strip()
    return words if words.endswith((".", "!", "?")) else f"{words}."
