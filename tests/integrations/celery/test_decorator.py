"""`@exclusive` without a worker: what it accepts, what it refuses, and eager tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, chain, group
from celery.canvas import Signature

import holdfast
from holdfast.errors import BadOption, BadTicket, UsageError
from holdfast.integrations.celery import (
    GreenletsUnsupported,
    current_lease,
    exclusive,
    hand_over_to,
    was_skipped,
)
from holdfast.integrations.celery import clients as integration
from holdfast.integrations.celery.busy_policy import check_countdown
from holdfast.integrations.celery.handover import HEADER


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A store of this test's own."""
    yield f"sqlite://{tmp_path}/locks.db"
    integration._mine.close()


@pytest.fixture
def locks(url: str) -> Iterator[holdfast.Locks]:
    """Another party's view of it."""
    with holdfast.connect(url, owner="another party") as opened:
        yield opened


@pytest.fixture
def app(url: str) -> Celery:
    """An app whose tasks run at once, in this process. They are not to be shared: Celery
    would give them to the apps of later tests as well."""
    app = Celery("decorator", set_as_current=False)
    app.conf.update(holdfast_url=url, task_always_eager=True, task_eager_propagates=True)
    return app


def test_an_eager_task_holds_its_lock(app: Celery, locks: holdfast.Locks) -> None:
    """The key is made from the arguments and their defaults."""

    @app.task(shared=False)
    @exclusive(key="report:{year}-{month:02d}")
    def report(year: int, month: int = 1) -> str:
        (holder,) = locks.show("report:2026-01").holders
        assert holder.fence == current_lease().fence
        return str(holder.owner)

    assert report.delay(2026).get().startswith(report.name)
    assert locks.show("report:2026-01").free


def test_a_bound_task_and_a_function_as_key(app: Celery) -> None:
    """With bind=True the task comes first; a key may be computed."""

    @app.task(bind=True, shared=False)
    @exclusive(key=lambda task, a, b: f"sum:{a + b}")
    def add(self: Any, a: int, b: int) -> str:
        assert self.request.id
        return str(current_lease().key)

    assert add.delay(1, 2).get() == "sum:3"
    assert add.delay(a=1, b=4).get() == "sum:5"


def test_a_task_class(app: Celery) -> None:
    """The `run` of a task class can be decorated."""

    class Refresh(app.Task):  # type: ignore[misc]
        name = "refresh"

        @exclusive(key="refresh:{item}")
        def run(self, item: str) -> str:
            return str(current_lease().key)

    refresh = app.register_task(Refresh())
    assert refresh.delay("x").get() == "refresh:x"


def test_a_direct_call_is_locked_too(app: Celery, locks: holdfast.Locks) -> None:
    """Calling the task like a function takes the lock, and a taken one is skipped."""

    @app.task(shared=False)
    @exclusive(key="k", busy="skip")
    def task() -> str:
        return str(current_lease().owner)

    assert "called directly" in task()
    with locks.acquire("k"):
        assert was_skipped(task())


def test_wrong_arguments_are_seen_before_sending(app: Celery) -> None:
    """Celery still checks the call against the task's own signature."""

    @app.task(shared=False)
    @exclusive(key="k:{item}")
    def task(item: str) -> None: ...

    app.conf.task_always_eager = False
    with pytest.raises(TypeError, match="item"):
        task.delay()


def test_shared_tasks_run_side_by_side(app: Celery, locks: holdfast.Locks) -> None:
    """mode and limit are those of `acquire`."""

    @app.task(shared=False)
    @exclusive(key="k", mode="shared", busy="raise")
    def read() -> str:
        return str(current_lease().mode)

    with locks.acquire("k", mode="shared"):
        assert read.delay().get() == "shared"


def test_a_timeout_before_it_counts_as_taken(app: Celery, locks: holdfast.Locks) -> None:
    """`timeout` is how long to wait first, whatever comes then."""

    @app.task(shared=False)
    @exclusive(key="k", busy="wait", timeout=0.1)
    def waits() -> None: ...

    @app.task(shared=False)
    @exclusive(key="k", busy="skip", timeout=0.1)
    def skips() -> None: ...

    with locks.acquire("k"):
        with pytest.raises(holdfast.AcquireTimeout):
            waits.delay()
        assert was_skipped(skips.delay().get())


def test_no_tokens_in_what_celery_stores(app: Celery, locks: holdfast.Locks) -> None:
    """The error of a busy task has no holders with tokens in it."""

    @app.task(shared=False)
    @exclusive(key="k", busy="raise")
    def task() -> None: ...

    with locks.acquire("k") as lease, pytest.raises(holdfast.Busy) as caught:
        task.delay()
    assert caught.value.holders == ()
    assert lease.hold.token not in repr(vars(caught.value))


def test_a_lost_lease_fails_the_task(app: Celery, locks: holdfast.Locks) -> None:
    """A task that ended well without its lock is not a success."""

    @app.task(shared=False)
    @exclusive(key="k", ttl=0.3)
    def task() -> str:
        locks.evict("k")
        current_lease().lost.wait(10)
        return "done"

    with pytest.raises(holdfast.LeaseLost):
        task.delay()


def test_the_app_must_say_where_the_locks_are(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no silent default that locks only one machine."""
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    app.conf.holdfast_url = None

    @app.task(shared=False)
    @exclusive(key="k")
    def task() -> None: ...

    with pytest.raises(BadOption, match="holdfast_url"):
        task.delay()


def test_locks_or_a_function_that_makes_them(app: Celery, url: str) -> None:
    """`locks=` wins over the settings; a function is called once in a process."""
    made: list[holdfast.Locks] = []

    def make() -> holdfast.Locks:
        made.append(holdfast.connect(url, owner="made here"))
        return made[-1]

    @app.task(shared=False)
    @exclusive(key="k", locks=make)
    def task() -> None: ...

    task.delay()
    task.delay()
    assert len(made) == 1
    given = holdfast.connect(url)

    @app.task(shared=False)
    @exclusive(key="k", locks=given)
    def other() -> bool:
        return current_lease()._client is given._client

    assert other.delay().get()
    given.close()


def _in_child(run: Callable[[], object]) -> bool:
    """Whether this goes well in a forked process."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Newer Pythons warn of what a fork does to threads, and that is what is tested.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_client_is_not_carried_over_a_fork(app: Celery) -> None:
    """A forked child makes a client of its own."""

    @app.task(shared=False)
    @exclusive(key="k")
    def task() -> None: ...

    task.delay()
    assert _in_child(task.delay)


# Newer Pythons warn of what a fork does to threads, and that is what is tested.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_locks_that_were_made_before_the_fork(app: Celery, locks: holdfast.Locks) -> None:
    """They work in the child, too."""

    @app.task(shared=False)
    @exclusive(key="k", locks=locks)
    def task() -> None: ...

    task.delay()
    assert _in_child(task.delay)


def test_green_threads_are_refused(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first use of a client under a patched standard library is an error."""
    monkeypatch.setitem(
        __import__("sys").modules,
        "gevent.monkey",
        SimpleNamespace(is_module_patched=lambda name: True),
    )

    @app.task(shared=False)
    @exclusive(key="k")
    def task() -> None: ...

    with pytest.raises(GreenletsUnsupported, match="prefork"):
        task.delay()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": "k:{nobody}"}, "nobody"),
        ({"key": "k", "busy": "sleep"}, "busy is one of"),
        ({"key": "k", "ttl": -1}, "ttl"),
        ({"key": "k", "countdown": "soon"}, "countdown"),
        ({"key": "k", "timeout": -1}, "timeout"),
        ({"key": "k", "max_hold": "long"}, "max_hold"),
        ({"key": "k", "mode": "sharde"}, "mode"),
        ({"key": "k", "late": "maybe"}, "late"),
        ({"key": "k", "take_from": "nobody"}, "take_from"),
        ({"key": "k", "hand_over": -3}, "ttl"),
        ({"key": "k", "note": {1: 2}}, "note"),
        ({"key": "k", "url": "memory://", "locks": holdfast.connect}, "not both"),
    ],
)
def test_mistakes_are_told_where_they_are_made(options: dict[str, Any], says: str) -> None:
    """A wrong option is an error when the module is imported."""
    with pytest.raises(UsageError, match=says):
        exclusive(**options)(lambda item: None)


def test_a_countdown_may_be_a_timedelta() -> None:
    """In seconds: Celery would not send the task again with a timedelta, and so lose it."""
    assert check_countdown(timedelta(minutes=1)) == 60
    assert check_countdown(0.5) == 0.5


def test_the_wrong_order_of_decorators(app: Celery) -> None:
    """@exclusive on top of @app.task would guard nothing."""

    @app.task(shared=False)
    def task() -> None: ...

    with pytest.raises(UsageError, match=r"under @app\.task"):
        exclusive(key="k")(task)


def test_without_parentheses() -> None:
    """Then the task itself is taken for the function that makes keys: told when it first runs."""

    @exclusive  # type: ignore[arg-type]
    def refresh(filter_id: int) -> None:
        raise AssertionError("it ran")

    with pytest.raises(UsageError, match="needs a key"):
        refresh(7)  # type: ignore[type-var]


def test_async_functions_are_refused() -> None:
    """Celery would not await them."""

    async def task() -> None: ...

    with pytest.raises(UsageError, match="async"):
        exclusive(key="k")(task)


def _handed(app: Celery, target: Any) -> Signature:
    @app.task(name="hands", shared=False)
    @exclusive(key="k")
    def hands() -> None:
        sent.append(hand_over_to(target, within=5))

    sent: list[Signature] = []
    hands.delay()
    return sent[0]


def test_a_ticket_goes_to_the_first_of_a_chain(app: Celery, locks: holdfast.Locks) -> None:
    """Of a chain the first task carries it; the signature that was given is unchanged."""
    given = chain(Signature("a", app=app), Signature("b", app=app))
    sent = _handed(app, given)
    assert HEADER in sent.tasks[0].options["headers"]
    assert "headers" not in sent.tasks[1].options
    assert "headers" not in given.tasks[0].options
    assert locks.show("k").holders[0].offered


def test_a_ticket_cannot_go_to_a_group(app: Celery, locks: holdfast.Locks) -> None:
    """Only one can hold it; the lease is not given up for nothing."""
    with pytest.raises(UsageError, match="group"):
        _handed(app, group(Signature("a", app=app), Signature("b", app=app)))
    assert locks.show("k").free


def test_other_headers_stay(app: Celery) -> None:
    """The ticket is added to the headers that are there."""
    sent = _handed(app, Signature("a", app=app).set(headers={"trace": "1"}))
    assert sent.options["headers"]["trace"] == "1"


def test_a_ticket_for_another_lock(app: Celery, locks: holdfast.Locks) -> None:
    """A lease on one key does not open another."""

    @app.task(shared=False)
    @exclusive(key="k:{item}", take_from="ticket")
    def task(item: str, ticket: Any) -> None: ...

    ticket = locks.acquire("k:1").hand_over(ttl=5)
    with pytest.raises(BadTicket, match="'k:1', and not on 'k:2'"):
        task.delay("2", ticket)
    with pytest.raises(BadTicket, match="not a list"):
        task.delay("2", [ticket])


def test_a_late_ticket_means_to_queue_like_anybody(app: Celery, locks: holdfast.Locks) -> None:
    """Without late="fail", a ticket that was used is no obstacle."""

    @app.task(shared=False)
    @exclusive(key="k", take_from="ticket")
    def task(ticket: str) -> int:
        return int(current_lease().fence)

    ticket = locks.acquire("k").hand_over(ttl=5)
    assert task.delay(ticket).get() < task.delay(ticket).get()
