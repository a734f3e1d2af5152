"""The small lock, beside the class that it replaces."""

from __future__ import annotations

import logging
import time
from decimal import Decimal
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from holdfast.core.records import SECOND
from holdfast.dropin.dynamodb_lock import DynamoDBLock
from holdfast.runtime import clock
from tests.dropin.dynamodb import at
from tests.dropin.dynamodb_lock import counter
from tests.dropin.dynamodb_lock.lab import Lab, Whose
from tests.dropin.lossy import LossyProxy, Mode
from tests.dropin.workers import count_together
from tests.helpers import until

PROCESSES, TIMES = 8, 50
TTL = 60
EPOCH = 1_800_000_000
LOST: list[Mode] = ["cut reply", "drop reply", "reset"]


@pytest.fixture(params=["old", "new"])
def whose(request: pytest.FixtureRequest) -> Whose:
    """The class that pipelines have had, or ours."""
    return request.param  # type: ignore[no-any-return]


# --- what both do ---------------------------------------------------------------------------


def test_one_holder(lab: Lab, whose: Whose) -> None:
    """Taken once, also from the same owner, and free again after the release."""
    lock = lab.lock(whose)
    assert lock.is_locked("k") is False
    assert lock.acquire("k", "run-1") is True
    assert lock.acquire("k", "run-2") is False
    assert lock.acquire("k", "run-1") is False
    assert lock.is_locked("k") is True
    assert lock.acquire("l", "run-2") is True
    assert lock.release("k", "run-1") is True
    assert lock.is_locked("k") is False
    assert lock.acquire("k", "run-2") is True


def test_only_the_owner_frees(lab: Lab, whose: Whose) -> None:
    """Whoever it is that calls: the owner's name is what counts."""
    lock, other = lab.lock(whose), lab.lock(whose)
    assert lock.release("k", "run-1") is False
    lock.acquire("k", "run-1")
    assert lock.release("k", "run-2") is False
    assert lock.is_locked("k") is True
    assert other.release("k", "run-1") is True
    assert lock.release("k", "run-1") is False


def test_what_is_on_the_table(lab: Lab, whose: Whose) -> None:
    """These attributes, whole seconds, beside what ours adds under a name of its own."""
    before = int(time.time())
    assert lab.lock(whose, ttl_seconds=3600).acquire("k", "run-1")
    item = lab.item()
    assert item is not None
    assert set(item) - {"holdfast_nonce"} == {"lock_key", "owner_id", "expires_at", "acquired_at"}
    assert item["owner_id"] == "run-1"
    assert item["acquired_at"] % 1 == item["expires_at"] % 1 == 0
    assert before - 3 <= item["acquired_at"] <= time.time()
    assert before + 3600 <= item["expires_at"] <= time.time() + 3604


def test_an_expired_lock_is_taken_over(lab: Lab, whose: Whose) -> None:
    """And is nobody's until then."""
    lab.put(owner_id="dead", expires_at=int(time.time()) - 5, acquired_at=0)
    lock = lab.lock(whose)
    assert lock.is_locked("k") is False
    assert lock.acquire("k", "run-1") is True
    assert lock.release("k", "dead") is False


@pytest.mark.parametrize(("first", "second"), [("old", "new"), ("new", "old"), ("new", "new")])
def test_each_takes_over_from_the_other(lab: Lab, first: Whose, second: Whose) -> None:
    """Once the ttl is over, and not before."""
    one, two = lab.lock(first, ttl_seconds=2), lab.lock(second)
    assert one.acquire("k", "run-1")
    assert two.acquire("k", "run-2") is False
    assert two.is_locked("k") is True
    until(lambda: two.acquire("k", "run-2"))
    assert one.acquire("k", "run-1") is False
    assert one.release("k", "run-1") is False
    assert two.release("k", "run-2") is True


@pytest.mark.timeout(300)
def test_old_and_new_workers_count_together(local: Lab, tmp_path: Path) -> None:
    """Eight processes, half of them with the class they had: no increment is lost."""
    workers = [
        (local.endpoint, local.table, ("old", "new")[number % 2], TIMES, f"run-{number}")
        for number in range(PROCESSES)
    ]
    counted = count_together(counter.__name__, tmp_path / "number", workers)
    assert counted == PROCESSES * TIMES


# --- what ours does -------------------------------------------------------------------------


def test_what_is_logged(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """For the operators of a pipeline, in these words."""
    caplog.set_level(logging.INFO, "holdfast")
    lock = lab.lock()
    lock.acquire("pipeline:bcra", "run-123")
    lock.acquire("pipeline:bcra", "run-456")
    lock.release("pipeline:bcra", "run-456")
    lock.release("pipeline:bcra", "run-123")
    assert [(r.levelname, r.getMessage()) for r in caplog.records if "bcra" in r.message] == [
        ("INFO", "Acquired lock for pipeline:bcra (owner: run-123)"),
        ("WARNING", "Lock already acquired for pipeline:bcra"),
        ("WARNING", "Lock for pipeline:bcra is not held by run-456"),
        ("INFO", "Released lock for pipeline:bcra (owner: run-123)"),
    ]


def test_no_name_forges_a_line_of_the_log(local: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """It is one line, whatever the run is called."""
    caplog.set_level(logging.INFO, "holdfast")
    local.lock().acquire("k", "me)\nINFO Released lock for k (owner: me")
    assert all("\n" not in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("mode", LOST)
def test_a_lost_reply_to_acquire(shy: Lab, proxy: LossyProxy, mode: Mode, warm: bool) -> None:
    """It is ours; the old class says False, and nobody frees it for an hour."""
    lock = shy.lock(through=at(proxy.port))
    if warm:
        lock.is_locked("k")
    proxy.plan(mode, 1, b"PutItem")
    assert lock.acquire("k", "run-1") is True
    assert proxy.lost == 1
    assert lock.acquire("k", "run-1") is False
    assert lock.release("k", "run-1") is True


def test_no_reply_to_any_try_of_acquire(shy: Lab, proxy: LossyProxy) -> None:
    """boto3 gives up; a look shows that it is ours."""
    lock = shy.lock(through=at(proxy.port))
    proxy.plan("cut reply", 3, b"PutItem")
    assert lock.acquire("k", "run-1") is True
    assert proxy.lost == 3


def test_no_reply_at_all(shy: Lab, proxy: LossyProxy) -> None:
    """An error of boto3's; the next try of the same owner finds out."""
    lock = shy.lock(through=at(proxy.port))
    lock.is_locked("k")
    proxy.plan("cut reply", 1 << 30)
    with pytest.raises((BotoCoreError, ClientError)):
        lock.acquire("k", "run-1")
    proxy.heal()
    assert lock.acquire("k", "run-2") is False
    assert lock.acquire("k", "run-1") is True
    assert lock.acquire("k", "run-1") is False


def test_two_runs_of_one_name_and_a_lost_reply(shy: Lab, proxy: LossyProxy) -> None:
    """Started in the same second on two machines, they have the same owner_id."""
    other, lock = shy.lock(), shy.lock(through=at(proxy.port))
    lock.is_locked("k")
    proxy.plan("reset", 1, b"PutItem")
    assert other.acquire("k", "run-1701234567") is True
    assert lock.acquire("k", "run-1701234567") is False


@pytest.mark.parametrize("mode", LOST)
def test_a_lost_reply_to_release(shy: Lab, proxy: LossyProxy, mode: Mode) -> None:
    """It was freed, and so we say."""
    lock = shy.lock(through=at(proxy.port))
    lock.acquire("k", "run-1")
    proxy.plan(mode, 1, b"DeleteItem")
    assert lock.release("k", "run-1") is True
    assert proxy.lost == 1
    assert shy.item() is None


def test_a_lost_reply_to_a_release_that_others_saw(shy: Lab, proxy: LossyProxy) -> None:
    """Somebody has it by now: it was freed by us all the same, and they keep it."""
    lock, other = shy.lock(through=at(proxy.port)), shy.lock()
    lock.acquire("k", "run-1")
    proxy.after_loss = lambda: other.acquire("k", "run-2")
    proxy.plan("cut reply", 1, b"DeleteItem")
    assert lock.release("k", "run-1") is True
    assert other.release("k", "run-2") is True


def test_a_lost_reply_to_a_release_of_anothers(shy: Lab, proxy: LossyProxy) -> None:
    """It was not ours before either."""
    lock, other = shy.lock(through=at(proxy.port)), shy.lock()
    other.acquire("k", "run-2")
    proxy.plan("cut reply", 1, b"DeleteItem")
    assert lock.release("k", "run-1") is False
    assert other.is_locked("k") is True


def test_this_machines_clock_is_not_asked(timed: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the service tells its time, a wrong clock takes no lock from anybody."""
    holder, rival = timed.lock(), timed.lock()
    holder.acquire("k", "run-1")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 7200)
    assert rival.acquire("k", "run-2") is False
    assert rival.is_locked("k") is True


TENTHS = [number / 10 for number in range(10)]


def _heard(monkeypatch: pytest.MonkeyPatch, heard: float, now: float) -> DynamoDBLock:
    """A lock that heard the service's time at one moment, and is used at another."""
    resource = SimpleNamespace(meta=SimpleNamespace(client=None))
    lock = DynamoDBLock("locks", TTL, dynamodb_resource=resource)
    monkeypatch.setattr(clock, "monotonic", lambda: round(heard * SECOND))
    header = {"HTTPHeaders": {"date": formatdate(int(heard), usegmt=True)}}
    lock._items.clock.hear(header, round(heard * SECOND))
    monkeypatch.setattr(clock, "monotonic", lambda: round(now * SECOND))
    return lock


@pytest.mark.parametrize("taken", TENTHS)
@pytest.mark.parametrize("heard", TENTHS)
def test_how_long_a_dead_run_blocks(
    monkeypatch: pytest.MonkeyPatch, heard: float, taken: float
) -> None:
    """For its ttl, and for four seconds more at most: the header counts whole seconds, so do
    the items, and half a second each is for clocks that differ."""
    at = EPOCH + 5 + taken
    item = _heard(monkeypatch, EPOCH + heard, at)._new_item("run-1", "n")
    item["expires_at"] = Decimal(item["expires_at"])
    blocked = []
    for tenths in range(80):
        later = at + TTL + tenths / 10
        for since in (0, *TENTHS):  # heard just now, or a while ago
            rival = _heard(monkeypatch, later - since, later)
            if not rival._expired(item):
                blocked.append(tenths / 10)
    assert 0.4 < max(blocked) <= 4.0
    assert min(blocked) == 0


@pytest.mark.parametrize("off", [-0.5, 0.5])
def test_a_clock_that_is_off_frees_nothing_early(
    monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    """One machine of the service is half a second behind, the other half a second ahead."""
    for taken in TENTHS:
        at = EPOCH + taken
        item = _heard(monkeypatch, at - off, at - off)._new_item("run-1", "n")
        item["expires_at"] = Decimal(item["expires_at"])
        end = at + TTL + off - 0.001
        assert not _heard(monkeypatch, end, end)._expired(item)


def test_requests(lab: Lab) -> None:
    """Cold two to acquire, or one where it is taken; then one each."""
    asked: list[str] = []
    lab.resource.meta.client.meta.events.register(
        "before-call.dynamodb", lambda model, **_: asked.append(model.name)
    )
    lock = lab.lock()
    lock.acquire("k", "run-1")
    lock.release("k", "run-1")
    lock.acquire("k", "run-1")
    lab.lock().acquire("k", "run-2")
    assert asked == ["GetItem", "PutItem", "DeleteItem", "PutItem", "GetItem"]


def test_who_may_not_read(timed: Lab) -> None:
    """Some policies name no more than the two writes; the refusal tells the time."""
    denied = {
        "Error": {"Code": "AccessDeniedException", "Message": "not authorized"},
        "ResponseMetadata": {"HTTPHeaders": {"date": formatdate(usegmt=True)}},
    }

    def refuse(**_: object) -> None:
        raise ClientError(denied, "GetItem")

    timed.resource.meta.client.meta.events.register("before-call.dynamodb.GetItem", refuse)
    lock = timed.lock()
    assert lock.acquire("k", "run-1") is True
    assert not lock._items.clock.unknown
    assert timed.lock().acquire("k", "run-2") is False
    assert lock.release("k", "run-2") is False
    assert lock.release("k", "run-1") is True
    assert lock.release("k", "run-1") is False


@pytest.mark.parametrize("expires_at", ["soon", None])
def test_an_item_that_is_no_lock(shy: Lab, whose: Whose, expires_at: str | None) -> None:
    """Is left alone: nobody can say when it ends."""
    shy.put(**({} if expires_at is None else {"expires_at": expires_at}))
    assert shy.lock(whose).acquire("k", "run-1") is False
    assert "owner_id" not in (shy.item() or {})


def test_other_errors_are_boto3s(lab: Lab) -> None:
    """As they were."""
    lock = DynamoDBLock("no-such-table", dynamodb_resource=lab.resource)
    with pytest.raises(ClientError, match="ResourceNotFound"):
        lock.acquire("k", "run-1")


@pytest.mark.parametrize("ttl", [0, -1])
def test_a_ttl_that_makes_no_sense(lab: Lab, ttl: int) -> None:
    """Is told at once."""
    with pytest.raises(ValueError, match="ttl_seconds"):
        lab.lock(ttl_seconds=ttl)


def test_it_makes_a_resource_of_its_own(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """As boto3 is configured, with the region and the endpoint that were given."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    lock = DynamoDBLock(
        table_name=lab.table, ttl_seconds=60, region_name="us-east-1", endpoint_url=lab.endpoint
    )
    assert lock.acquire("k", "run-1") is True
