"""What goes wrong is said clearly: what is to blame, how sure we are, and what to do."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest

import holdfast
from holdfast.api.locks import Locks
from holdfast.core.records import Record
from holdfast.errors import (
    BadOption,
    BadURL,
    ForeignStore,
    HoldfastError,
    Misconfigured,
    MissingDriver,
    OutcomeUnknown,
    StoreFull,
    Unavailable,
)
from holdfast.stores.dynamodb import DynamoDBStore
from holdfast.stores.dynamodb.errors import NotAllowed, TableMissing
from holdfast.stores.registry import open_store
from tests.engines.base import free_port, require
from tests.engines.dynamodb import session
from tests.engines.moto import Moto
from tests.stores.dynamodb.lab import Answer, Lab, told

FINE: Answer = (200, "", "{}")
THROTTLED: Answer = (400, "ProvisionedThroughputExceededException", "The level was exceeded")
SECRET = "wJalrXUtnFEMI"


@contextmanager
def answering(*answers: Answer) -> Iterator[DynamoDBStore]:
    """A store on a service that gives these answers."""
    with told(*answers) as service:
        store = open_store(session(), table="locks", endpoint_url=service.endpoint, timeout_s=1)
        assert isinstance(store, DynamoDBStore)
        try:
            yield store
        finally:
            store.close()


# --- what the service says ------------------------------------------------------------------

ANSWERS: list[tuple[Answer, type[HoldfastError], type[HoldfastError], str]] = [
    (THROTTLED, Unavailable, Unavailable, "on-demand"),
    ((400, "ThrottlingException", "Slow"), Unavailable, Unavailable, "capacity"),
    ((400, "TransactionConflictException", "Busy"), Unavailable, Unavailable, "Busy"),
    ((400, "ExpiredTokenException", "Too old"), Unavailable, Unavailable, "renew them"),
    ((500, "InternalServerError", "Oops"), Unavailable, OutcomeUnknown, "Oops"),
    ((503, "ServiceUnavailable", "Later"), Unavailable, OutcomeUnknown, "Later"),
    ((400, "UnrecognizedClientException", "Who?"), Misconfigured, Misconfigured, "AWS_PROFILE"),
    ((400, "AccessDeniedException", "No"), NotAllowed, NotAllowed, "setup --print"),
    ((400, "ResourceNotFoundException", "No table"), TableMissing, TableMissing, "holdfast setup"),
    ((400, "ValidationException", "Item size"), StoreFull, StoreFull, "400 KB"),
    ((400, "SomethingNew", "Hm"), Misconfigured, Misconfigured, "Hm"),
    ((0, "", ""), Unavailable, OutcomeUnknown, "closed"),
    # What a proxy may say, and half of what the service may: neither with its length.
    ((403, "", "<html>Blocked</html>"), NotAllowed, NotAllowed, "Blocked"),
    ((503, "", "<html>Later</html>"), Unavailable, OutcomeUnknown, "503"),
    ((400, "", '{"__type": "com.amazon'), Unavailable, OutcomeUnknown, "22 read"),
    ((200, "", "<html>Welcome</html>"), Unavailable, OutcomeUnknown, "20 read"),
]


@pytest.mark.parametrize(
    ("answer", "reading", "writing", "words"), ANSWERS, ids=[one[0][1] or "-" for one in ANSWERS]
)
def test_answers(
    answer: Answer, reading: type[HoldfastError], writing: type[HoldfastError], words: str
) -> None:
    """Each error is told by who is to blame and how sure we are, with its cause."""
    with answering(answer, answer) as store, pytest.raises(reading, match=words) as caught:
        store.load("k")
    assert type(caught.value) is reading
    assert "locks in eu-west-1" in str(caught.value)
    assert caught.value.__cause__ is not None
    with answering(answer) as store, pytest.raises(writing, match=words) as caught:
        store.swap("k", None, Record(1))
    assert type(caught.value) is writing


def test_signature_is_not_shown() -> None:
    """What the service repeats of a signed request, a session token too, stays unsaid."""
    said = f"The signature does not match.\nThe Canonical String is\nx-amz-token:{SECRET}"
    with answering((400, "InvalidSignatureException", said)) as store:
        with pytest.raises(Misconfigured, match=r"does not match.*clock") as caught:
            store.load("k")
    assert SECRET not in str(caught.value)


def test_throttling_is_ridden_out() -> None:
    """Who has time tries again, and who has none is told that nothing was done."""
    with answering(THROTTLED, THROTTLED, FINE, THROTTLED, FINE, FINE, FINE) as store:
        with Locks(store, ttl=60) as locks:
            lease = locks.acquire("k", timeout=30)
            assert lease.release() is True
    with answering(*[THROTTLED] * 50) as store, Locks(store) as locks:
        for timeout in (0, 0.1):
            with pytest.raises(Unavailable, match="no capacity"):
                locks.acquire("k", timeout=timeout)


def test_failed_beat_is_tried_again() -> None:
    """A throttled renewal costs nothing but a second one."""
    with answering(FINE, FINE, THROTTLED, FINE, FINE) as store, Locks(store, ttl=60) as locks:
        lease = locks.acquire("k")
        with pytest.raises(Unavailable):
            lease.renew()
        lease.renew()
        assert lease.release() is True


def test_forbidden_after_a_lost_reply_is_unknown() -> None:
    """Whatever the second attempt was told: the first one may have been carried out."""
    refused = (400, "AccessDeniedException", "not any more")
    with told((0, "", ""), refused) as service:
        config = boto3.session.Config(retries={"max_attempts": 2, "mode": "standard"})
        client = session().client("dynamodb", endpoint_url=service.endpoint, config=config)
        store = open_store(client, table="locks")
        with pytest.raises(OutcomeUnknown, match="not any more"):
            store.swap("k", None, Record(1))
        client.close()


def test_refused_after_a_lost_reply_is_unknown() -> None:
    """A client that tries again by itself may have been lucky before it was refused."""
    with told((0, "", ""), THROTTLED, THROTTLED) as service:
        config = boto3.session.Config(retries={"max_attempts": 2, "mode": "standard"})
        client = session().client("dynamodb", endpoint_url=service.endpoint, config=config)
        store = open_store(client, table="locks")
        with pytest.raises(OutcomeUnknown, match="exceeded"):
            store.swap("k", None, Record(1))
        assert len(service.seen) == 3
        service.server_close()
        with pytest.raises(OutcomeUnknown):
            store.swap("k", None, Record(1))
        client.close()


def test_unprocessed_keys_are_not_taken_for_missing() -> None:
    """A look that was cut short says nothing about the keys that it left out."""
    cut_short = json.dumps({"Responses": {}, "UnprocessedKeys": {"locks": {"Keys": []}}})
    with answering((200, "", cut_short)) as store, pytest.raises(Unavailable, match="capacity"):
        store.transport.run(store.protocol.entries_calls(["k"]))


# --- bad input ------------------------------------------------------------------------------


def test_secret_of_an_endpoint_is_not_shown() -> None:
    """Not even the address that is to be checked shows a password."""
    store = open_store(
        "dynamodb://locks?region=eu-west-1&endpoint_url=http://me:s3cret@127.0.0.1:1"
    )
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1") as caught:
        store.load("k")
    assert "s3cret" not in str(caught.value)
    store.close()


def test_missing_table(any_lab: Lab) -> None:
    """It is not made behind one's back; the error says how to make it."""
    store = any_lab.open(any_lab.new_table())
    for call in (lambda: store.load("k"), lambda: store.swap("k", None, Record(1))):
        with pytest.raises(TableMissing, match=r"holdfast setup.*region"):
            call()
    with pytest.raises(TableMissing):
        store.scan("", None, 5)


SCHEMAS: dict[str, dict[str, Any]] = {
    "another name": {"id": ("S", "HASH")},
    "a number": {"lock_key": ("N", "HASH")},
    "a sort key": {"lock_key": ("S", "HASH"), "sort_key": ("S", "RANGE")},
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_wrong_key_schema(lab: Lab, schema: str) -> None:
    """A table with another primary key is refused, by setup and in use."""
    keys, table = SCHEMAS[schema], lab.new_table()
    store = lab.open(table)
    store.transport.client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": kind} for name, (kind, _) in keys.items()
        ],
        KeySchema=[{"AttributeName": name, "KeyType": role} for name, (_, role) in keys.items()],
    )
    calls = (
        store.setup,
        lambda: store.load("k"),
        lambda: store.swap("k", None, Record(1)),
    )
    for call in calls:
        with pytest.raises(ForeignStore, match="partition_key="):
            call()


def test_no_credentials(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials nothing leaves, and the error says where they may be."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with holdfast.connect(lab.url("locks")) as locks:
        with pytest.raises(Misconfigured, match=r"AWS_ACCESS_KEY_ID.*profile.*role"):
            locks.acquire("k", timeout=0)


def test_unknown_profile(lab: Lab) -> None:
    """A profile that does not exist is told as such."""
    with pytest.raises(Misconfigured, match=r"nobody.*profile="):
        holdfast.connect(lab.url("locks", profile="nobody"))


def test_no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region must be named somewhere."""
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(Misconfigured, match=r"region=.*AWS_DEFAULT_REGION"):
        holdfast.connect("dynamodb://locks")


def test_no_such_region() -> None:
    """A name that cannot be a region is refused."""
    with pytest.raises(Misconfigured, match="Check the region"):
        holdfast.connect("dynamodb://locks?region=nowhere!")


def test_table_of_another_region() -> None:
    """moto keeps regions apart: the error names the one that was asked."""
    require(Moto)
    with Moto() as server:
        assert isinstance(server, Moto)
        lab = Lab(server.endpoint)
        table = lab.store().options.table
        store = lab.open(table, region="us-east-1")
        with pytest.raises(TableMissing, match=r"us-east-1.*region="):
            store.load("k")
        lab.close()


def test_nobody_listens(lab: Lab) -> None:
    """A refused connection means that nothing was done; it may work later."""
    store = lab.open("locks", endpoint_url=f"http://127.0.0.1:{free_port()}")
    for call in (lambda: store.load("k"), lambda: store.swap("k", None, Record(1))):
        with pytest.raises(Unavailable, match="region or endpoint"):
            call()


@pytest.mark.parametrize(
    "query",
    ["timeout_s=0", "timeout_s=x", "poll_s=-1", "clock_margin_s=nan", "billing=free",
     "read_capacity=0", "partition_key=a%20b", "colour=red"],
)  # fmt: skip
def test_bad_options(query: str) -> None:
    """Options that make no sense are refused before anything is opened."""
    with pytest.raises(BadOption, match=query.partition("=")[0]):
        open_store(f"dynamodb://locks?region=eu-west-1&{query}")


@pytest.mark.parametrize("url", ["dynamodb://", "dynamodb://ab", "dynamodb://a/b", "dynamodb:t"])
def test_bad_urls(url: str) -> None:
    """A store is named by its table."""
    with pytest.raises(BadURL, match="dynamodb://TABLE"):
        open_store(url)


def test_no_credentials_in_a_url() -> None:
    """A URL is no place for a secret, and it is not repeated."""
    with pytest.raises(BadURL, match="no place for credentials") as caught:
        open_store(f"dynamodb://AKIA:{SECRET}@locks?region=eu-west-1")
    assert SECRET not in str(caught.value)


def test_missing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without boto3 the error names the extra."""
    import sys

    for name in [name for name in sys.modules if name.startswith("holdfast.stores.dynamodb")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingDriver, match=r"holdfast\[dynamodb\]"):
        open_store("dynamodb://locks")


# --- rights ---------------------------------------------------------------------------------


def test_printed_policy_is_enough_and_needed() -> None:
    """With the first part of the policy locks work, with both also setup; without, it is told."""
    require(Moto)
    with Moto() as server:
        assert isinstance(server, Moto)
        lab = Lab(server.endpoint)
        store = lab.store()
        printed = store.ddl()
        policy = json.loads(printed[printed.index("{") : printed.index("# --- CloudFormation")])
        using, setting_up = policy["Statement"]
        for statement in (using, setting_up):
            assert (
                statement["Resource"] == f"arn:aws:dynamodb:eu-west-1:*:table/{store.options.table}"
            )
            statement["Resource"] = "*"  # moto knows no other
        users = {
            name: user(server, name, statements)
            for name, statements in {"a": [using], "b": [using, setting_up], "c": []}.items()
        }
        enforce(server)
        stores = {
            name: lab.open(store.options.table, made, endpoint_url=server.endpoint)
            for name, made in users.items()
        }
        with Locks(stores["a"], ttl=60) as a, Locks(stores["b"], ttl=60) as b:
            with a.acquire("k"), pytest.raises(holdfast.AcquireTimeout):
                b.acquire("k", timeout=0.5)
            assert [one.key for one in a.list(free=True)] == ["k"]
            assert a.purge(older_than=60) == 0
        stores["b"].setup()
        for call in (stores["a"].setup, lambda: stores["c"].load("k")):
            with pytest.raises(NotAllowed, match="setup --print"):
                call()
        lab.close()


def user(server: Moto, name: str, statements: list[Any]) -> boto3.Session:
    """A user with these rights."""
    iam = session().client("iam", endpoint_url=server.endpoint)
    iam.create_user(UserName=name)
    if statements:
        document = json.dumps({"Version": "2012-10-17", "Statement": statements})
        iam.put_user_policy(UserName=name, PolicyName="locks", PolicyDocument=document)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    iam.close()
    return boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name="eu-west-1")


def enforce(server: Moto) -> None:
    """From now on, moto looks at who asks."""
    text = {"Content-Type": "text/plain"}
    request = urllib.request.Request(f"{server.endpoint}/moto-api/reset-auth", b"0", text)
    with urllib.request.urlopen(request):
        pass
