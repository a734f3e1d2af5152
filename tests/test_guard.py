"""`guard`: a function under a lock whose key is made from its arguments, in both faces."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import BadKey, BadOption, Busy, LeaseLost, Locks, UsageError, aio, current_lease
from holdfast.api import default as default_client
from holdfast.api.guard import OnBusy
from tests.helpers import memory_locks, unique


@pytest.fixture
def locks() -> Iterator[Locks]:
    """A client on a store of its own."""
    with memory_locks() as client:
        yield client


def test_runs_under_the_lock(locks: Locks) -> None:
    """The function runs while its lock is held, and it is free afterwards."""

    @locks.guard("pipeline:{dataset}:{day}", note={"x": 1})
    def run(dataset: str, *, day: int = 7) -> tuple[str, Any]:
        """What it does."""
        lease = current_lease()
        assert locks.try_acquire(lease.key) is None
        return lease.key, lease.note

    assert run("orders") == ("pipeline:orders:7", {"x": 1})
    assert run(dataset="x", day=3) == ("pipeline:x:3", {"x": 1})
    assert locks.show("pipeline:orders:7").free
    assert (run.__name__, run.__doc__) == ("run", "What it does.")
    assert "dataset" in inspect.signature(run).parameters


def test_templates(locks: Locks) -> None:
    """Attributes, items, conversions and formats work; so does a method's self."""

    class Job:
        name = "n"

        @locks.guard("{self.name}/{args[0]}/{options[deep]!r:>6}/{{x}}")
        def run(self, *args: int, **options: Any) -> str:
            key: str = current_lease().key
            return key

    assert Job().run(5, deep="y") == "n/5/   'y'/{x}"


def test_templates_over_options(locks: Locks) -> None:
    """What a function takes as **options can be named, too; a call must then have it."""

    @locks.guard("{name}/{depth}")
    def run(name: str, **options: Any) -> str:
        key: str = current_lease().key
        return key

    assert run("a", depth=3) == "a/3"
    with pytest.raises(BadOption, match=r"names 'depth', which this call of .*run\(\) does not"):
        run("a")
    for template in ("{}", "{0}", "{options[x]}{1}"):
        with pytest.raises(BadOption, match="not an argument"):
            locks.guard(template)(lambda **options: None)


def test_partial_functions(locks: Locks) -> None:
    """The arguments are those that are left, also if the partial says what it wraps."""

    def run(job: str, day: int) -> str:
        key: str = current_lease().key
        return key

    partial = functools.wraps(run)(functools.partial(run, "nightly"))
    assert locks.guard("{day}")(partial)(7) == "7"
    assert locks.guard("{day}")(functools.wraps(partial)(lambda day: partial(day)))(7) == "7"


def test_forgotten_key(locks: Locks) -> None:
    """`@locks.guard` without its key is refused when the module is loaded, on both faces."""
    guards: list[Any] = [locks.guard, aio.connect(f"memory://{unique()}").guard]
    for guard in guards:
        with pytest.raises(BadOption, match=r"template of a key.*'report'"):
            guard(lambda x: x)


@pytest.mark.parametrize("template", ["{nobody}", "{}", "{0}", "{x", "x}", "{x:{width}}", 5, None])
def test_wrong_template_at_decoration(locks: Locks, template: Any) -> None:
    """A template that can never work is refused when the module is loaded."""
    with pytest.raises(BadOption, match=r"template|argument"):

        @locks.guard(template)
        def run(x: int) -> None: ...


def test_wrong_arguments(locks: Locks) -> None:
    """A call that does not fit fails as the function itself would, without a lock."""

    @locks.guard("{x}")
    def run(x: str) -> None: ...

    with pytest.raises(TypeError, match="missing"):
        run()  # type: ignore[call-arg]
    with pytest.raises(BadKey):
        run("")
    assert list(locks.list(free=True)) == []


def test_busy(locks: Locks, caplog: pytest.LogCaptureFixture) -> None:
    """skip gives None, raise raises `Busy`, wait waits; a wait can time out."""
    caplog.set_level(logging.INFO, "holdfast")
    calls: list[str] = []

    def note(kind: str) -> Any:
        return lambda: calls.append(kind)

    kinds: dict[str, Any] = {
        "skip": locks.guard("k", busy="skip")(note("skip")),
        "raise": locks.guard("k", busy="raise")(note("raise")),
        "wait": locks.guard("k", timeout=0.05)(note("wait")),
    }
    with locks.acquire("k"):
        assert kinds["skip"]() is None
        with pytest.raises(Busy):
            kinds["raise"]()
        with pytest.raises(holdfast.AcquireTimeout):
            kinds["wait"]()
    assert calls == []
    assert any("Skipping" in line and "lock k is taken" in line for line in caplog.messages)
    for run in kinds.values():
        run()
    assert calls == ["skip", "raise", "wait"]


@pytest.mark.parametrize("busy", ["skip", "raise"])
def test_busy_after_a_while(locks: Locks, busy: OnBusy) -> None:
    """With a timeout both wait for that long before they give up."""

    @locks.guard("k", busy=busy, timeout=30)
    def run() -> str:
        return "done"

    lease = locks.acquire("k")
    timer = threading.Timer(0.1, lease.release)
    timer.start()
    assert run() == "done"
    timer.join()


def test_wrong_options(locks: Locks) -> None:
    """An option that `acquire` does not know is refused at decoration, in both faces."""
    faces: list[Any] = [locks, aio.connect(f"memory://{unique()}")]
    for face in faces:
        with pytest.raises(TypeError, match="tll"):
            face.guard("k", tll=60)


def test_wrong_busy(locks: Locks) -> None:
    """Another word is refused at decoration."""
    with pytest.raises(BadOption, match="'skip', 'wait' or 'raise'"):
        locks.guard("k", busy="maybe")(print)  # type: ignore[call-overload]


def test_exceptions_pass(locks: Locks) -> None:
    """What the function raises comes out, also `Busy`, and the lock is free."""

    @locks.guard("k", busy="skip")
    def run(error: Exception) -> None:
        raise error

    for error in (ZeroDivisionError(), Busy("inside")):
        with pytest.raises(type(error)):
            run(error)
    assert locks.show("k").free


def test_loss_is_told(locks: Locks) -> None:
    """A function that ends well under a lost lease raises `LeaseLost`."""

    @locks.guard("k")
    def run() -> None:
        locks.evict("k")

    with pytest.raises(LeaseLost):
        run()


def test_nesting(locks: Locks) -> None:
    """The innermost lease is the current one, and outside there is none."""

    @locks.guard("inner")
    def inner() -> str:
        key: str = current_lease().key
        return key

    @locks.guard("outer")
    def outer() -> tuple[str, str]:
        return inner(), current_lease().key

    assert outer() == ("inner", "outer")
    with pytest.raises(UsageError, match="guarded function"):
        current_lease()


def test_generators_are_refused(locks: Locks) -> None:
    """The body of a generator would run after the lock is free: refused at decoration."""

    def numbers() -> Iterator[int]:
        yield 1

    async def numbers_later() -> AsyncIterator[int]:
        yield 1

    async def run() -> None:
        async with aio.connect(f"memory://{unique()}") as later:
            for function in (numbers, numbers_later):
                with pytest.raises(UsageError, match="generator"):
                    later.guard("k")(function)  # type: ignore[arg-type]

    for function in (numbers, numbers_later):
        with pytest.raises(UsageError, match="generator"):
            locks.guard("k")(function)
    asyncio.run(run())


class _Later:
    """Objects that can be called, and then have not run yet."""

    class Task:
        async def __call__(self) -> None:
            raise AssertionError("it ran")

    class Numbers:
        def __call__(self) -> Iterator[int]:
            raise AssertionError("it ran")
            yield 1


def _passed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    """What many a decorator makes: a plain function that returns what the other one does."""
    return lambda *args: function(*args)


def test_what_has_not_run_yet_is_refused(locks: Locks) -> None:
    """A decorator or an object may hide that the body runs after the call, when the lock would
    be free: then the call fails, instead of a body that runs without the lock."""

    async def later() -> None:
        raise AssertionError("it ran")

    def numbers() -> Iterator[int]:
        raise AssertionError("it ran")
        yield 1

    async def numbers_later() -> AsyncIterator[int]:
        raise AssertionError("it ran")
        yield 1

    blocks = contextlib.contextmanager(numbers), contextlib.asynccontextmanager(numbers_later)
    for function in (later, numbers, numbers_later, *blocks):
        with pytest.raises(UsageError, match="has not run"):
            locks.guard("k")(_passed_on(function))()
        assert locks.show("k").free
    for made in (_Later.Task(), _Later.Numbers()):
        with pytest.raises(UsageError, match="has not run"):
            locks.guard("k")(made)()


def test_what_has_not_run_yet_is_refused_by_aio() -> None:
    """An async function may return what has not run, too."""

    async def later() -> None:
        raise AssertionError("it ran")

    async def passed_on() -> Any:
        return later()

    async def run() -> None:
        async with aio.connect(f"memory://{unique()}") as locks:
            with pytest.raises(UsageError, match="has not run"):
                await locks.guard("k")(passed_on)()
            assert (await locks.show("k")).free

    asyncio.run(run())


def test_callables_without_a_name(locks: Locks) -> None:
    """A partial function can be guarded, and skipped, too."""
    run = locks.guard("k:{x}", busy="skip")(functools.partial(lambda x, y: x + y, y=2))
    assert run(1) == 3
    with locks.acquire("k:1"):
        assert run(1) is None
    with pytest.raises(BadOption, match="argument"):
        locks.guard("{z}")(functools.partial(lambda x: x))


def test_the_wrong_face(locks: Locks) -> None:
    """Async functions go to `aio`, the others do not."""

    async def later() -> None: ...

    async def run() -> None:
        async with aio.connect(f"memory://{unique()}") as asynchronous:
            with pytest.raises(UsageError, match="not an async function"):
                asynchronous.guard("k")(print)  # type: ignore[arg-type]

    with pytest.raises(UsageError, match=r"holdfast\.aio"):
        locks.guard("k")(later)
    asyncio.run(run())


def test_async_guard() -> None:
    """The same for async functions."""

    async def run() -> None:
        async with aio.connect(f"memory://{unique()}") as locks:

            @locks.guard("k:{x}", busy="skip")
            async def work(x: int) -> str:
                await asyncio.sleep(0)
                assert await locks.try_acquire(f"k:{x}") is None
                key: str = current_lease().key
                return key

            assert await work(1) == "k:1"
            async with locks.acquire("k:1"):
                assert await work(1) is None
                assert await work(2) == "k:2"
            assert set(await asyncio.gather(work(3), work(3))) == {"k:3", None}
            with pytest.raises(UsageError):
                current_lease()

            @locks.guard("k", busy="raise")
            async def fails() -> None:
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fails()
            assert (await locks.show("k")).free

    asyncio.run(run())


# --- without a client ---------------------------------------------------------------------------


@pytest.fixture
def default(monkeypatch: pytest.MonkeyPatch) -> str:
    """The store of those who name none. Nobody has connected to it yet."""
    url = f"memory://{unique()}"
    monkeypatch.setenv("HOLDFAST_URL", url)
    monkeypatch.setattr("holdfast.api.default._default_locks._locks", None)
    monkeypatch.setattr("holdfast.api.default_async._default_locks._locks", None)
    return url


def test_without_a_client(default: str) -> None:
    """The process connects at the first call of the first function, once."""
    clients = []

    @holdfast.guard("one:{name}", ttl=60)
    def one(name: str) -> str:
        clients.append(current_lease()._client)
        return str(current_lease().key)

    @holdfast.guard("two", busy="raise")
    def two() -> str:
        clients.append(current_lease()._client)
        return one("nested")

    assert default_client._default_locks._locks is None
    assert two() == "one:nested"
    assert clients[0] is clients[1]
    with holdfast.connect(default) as locks, locks.acquire("two"), pytest.raises(Busy):
        two()


async def _guarded_without_a_client() -> str:
    @aio.guard("k", ttl=60)
    async def run() -> str:
        return str(current_lease().key)

    return await run()


def test_without_a_client_on_a_loop(default: str) -> None:
    """The same with asyncio, on one event loop after another."""
    assert asyncio.run(_guarded_without_a_client()) == "k"
    assert asyncio.run(_guarded_without_a_client()) == "k"


@pytest.mark.parametrize("guard", [holdfast.guard, aio.guard])
def test_without_a_client_mistakes_show_when_the_module_is_loaded(guard: Any) -> None:
    """A misspelt option, or a function of the other face, needs no store to be refused."""
    with pytest.raises(TypeError):
        guard("k", tll=5)
    with pytest.raises(UsageError):
        guard("k")(_guarded_without_a_client if guard is holdfast.guard else lambda: None)
