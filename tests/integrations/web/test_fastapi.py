"""`holding`: a FastAPI endpoint that runs while it holds a lock."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, FastAPI, Request, WebSocket
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient

import holdfast
from holdfast import LeaseLost, aio
from holdfast.integrations.fastapi import holding
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore
from tests.helpers import unique
from tests.pages import code


@contextmanager
def serving(app: FastAPI, url: Any, **options: Any) -> Iterator[TestClient]:
    """The application with a client of this store in the state of its lifespan."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, aio.Locks]]:
        async with aio.connect(url, **options) as locks:
            yield {"locks": locks}

    app.router.lifespan_context = lifespan
    with TestClient(app) as client:
        yield client


def build(**options: Any) -> tuple[FastAPI, str]:
    """An application with one guarded endpoint, and the URL of its store."""
    app = FastAPI()

    @app.post("/reports/{month}")
    async def report(
        month: str, lease: Annotated[aio.Lease, holding("report:{month}", **options)]
    ) -> dict[str, Any]:
        return {"key": lease.key, "same": holdfast.current_lease() is lease}

    return app, f"memory://{unique()}"


def test_an_endpoint_holds_its_lock() -> None:
    """It gets the lease, and the lock is free again when the answer comes."""
    app, url = build()
    with serving(app, url) as client, holdfast.connect(url) as locks:
        for _ in range(3):
            answer = client.post("/reports/may")
            assert answer.json() == {"key": "report:may", "same": True}
            assert locks.show("report:may").free


@pytest.mark.parametrize("status", [409, 423, 503])
def test_busy_is_an_answer(status: int) -> None:
    """Whoever comes second is told at once when to come again, and not who is there."""
    app, url = build(busy=status, retry_after=7)
    with serving(app, url) as client, holdfast.connect(url, owner="secret-host") as locks:
        with locks.acquire("report:may"):
            answer = client.post("/reports/may")
            assert answer.status_code == status
            assert answer.headers["Retry-After"] == "7"
            assert "secret-host" not in answer.text
            assert client.post("/reports/june").status_code == 200
        assert client.post("/reports/may").status_code == 200


def test_it_can_wait() -> None:
    """With a timeout the lock counts as taken after that."""
    app, url = build(timeout=0.05)
    with serving(app, url) as client, holdfast.connect(url) as locks:
        with locks.acquire("report:may"):
            assert client.post("/reports/may").status_code == 409


def test_a_store_that_is_away_is_503() -> None:
    """Nothing ran, and the caller is told to try again."""
    store = FaultyStore(MemoryStore())
    app, _ = build(retry_after=3)
    with serving(app, store, request_timeout=0.2) as client:
        store.plan(then="refuse")
        answer = client.post("/reports/may")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "3")
        store.plan()
        assert client.post("/reports/may").status_code == 200


def test_a_key_that_is_too_long_is_the_callers_mistake() -> None:
    """Not a failure of the server."""
    app, url = build()
    with serving(app, url) as client:
        assert client.post("/reports/" + "x" * 600).status_code == 422


def test_the_key_may_be_a_function_of_validated_parameters() -> None:
    """FastAPI calls it like a dependency: 007 and 7 are one customer, and x is refused."""
    app = FastAPI()

    def customer_key(customer: int) -> str:
        return f"customer:{customer}"

    @app.get("/customers/{customer}")
    async def customer(lease: Annotated[aio.Lease, holding(customer_key)]) -> str:
        return lease.key

    with serving(app, f"memory://{unique()}") as client:
        assert client.get("/customers/007").json() == "customer:7"
        assert client.get("/customers/x").status_code == 422


def test_a_router_and_an_endpoint_that_needs_no_lease() -> None:
    """`dependencies=[…]`: nothing is passed, and the lock is held. A websocket has its own."""
    app, url = FastAPI(), f"memory://{unique()}"
    router = APIRouter(prefix="/admin", dependencies=[holding("admin")])

    @router.post("/reports/{month}", dependencies=[holding("report:{month}")])
    async def report(month: str, request: Request) -> list[str]:
        return [lock.key async for lock in request.state.locks.list()]

    @app.websocket("/rooms/{room}")
    async def talk(
        socket: WebSocket, room: str, lease: Annotated[aio.Lease, holding("room:{room}")]
    ) -> None:
        await socket.accept()
        await socket.send_text(lease.key)

    app.include_router(router)
    with serving(app, url) as client, holdfast.connect(url) as locks:
        assert client.post("/admin/reports/may").json() == ["admin", "report:may"]
        with locks.acquire("admin"):
            assert client.post("/admin/reports/may").status_code == 409
        with client.websocket_connect("/rooms/7") as socket:
            assert socket.receive_text() == "room:7"


def test_an_endpoint_in_a_thread_has_the_lease() -> None:
    """A plain function runs in a thread, where what needs no store can be asked."""
    app = FastAPI()

    @app.get("/")
    def look(lease: Annotated[aio.Lease, holding("look")]) -> bool:
        lease.check()
        return lease.held and holdfast.current_lease() is lease

    with serving(app, f"memory://{unique()}") as client:
        assert client.get("/").json() is True


@pytest.mark.parametrize("options", [{}, {"on_lost": "cancel"}])
def test_a_loss_is_told_instead_of_an_answer(options: dict[str, Any]) -> None:
    """The endpoint returned as if all were well, but its lease was gone: `LeaseLost`, which the
    application may turn into an answer of its own."""
    app = FastAPI()

    @app.exception_handler(LeaseLost)
    async def lost(request: Request, why: LeaseLost) -> JSONResponse:
        return JSONResponse({"lost": why.key}, 500)

    @app.get("/")
    async def work(
        request: Request, lease: Annotated[aio.Lease, holding("work", ttl=5, **options)]
    ) -> str:
        await request.state.locks.evict("work")
        with pytest.raises(LeaseLost):
            await lease.renew()
        return "done"

    with serving(app, f"memory://{unique()}") as client:
        answer = client.get("/")
        assert (answer.status_code, answer.json()) == (500, {"lost": "work"})


def test_an_exception_of_the_endpoint_is_its_own() -> None:
    """The lock is released, and the exception comes out as it is."""
    app = FastAPI()

    @app.get("/")
    async def fail(lease: Annotated[aio.Lease, holding("fail")]) -> None:
        raise ZeroDivisionError

    with serving(app, f"memory://{unique()}") as client:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                client.get("/")


def test_mistakes_are_told() -> None:
    """In the definition where that is possible, and with what to do."""
    with pytest.raises(TypeError, match="tll"):
        holding("report", tll=5)
    with pytest.raises(holdfast.BadOption, match="status"):
        holding("report", busy=200)
    app, _ = build()
    with pytest.raises(holdfast.UsageError, match="with TestClient"):
        TestClient(app).post("/reports/may")

    @app.get("/orders/{order}")
    async def order(lease: Annotated[aio.Lease, holding("order:{number}")]) -> None: ...

    with serving(app, "memory://") as client:
        with pytest.raises(holdfast.UsageError, match="'number'"):
            client.get("/orders/1")


def test_a_client_can_be_given() -> None:
    """Made at module level, as for any other program."""
    locks = aio.connect(f"memory://{unique()}")
    app, _ = build(locks=locks)
    with TestClient(app) as client:
        assert client.post("/reports/may").status_code == 200


PAGE = "frameworks/fastapi.md"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the reader's own function, which the page imports, has made; and a store."""
    reports, made = ModuleType("reports"), list[str]()

    async def make_report(month: str, fence: int) -> dict[str, int]:
        made.append(month)
        return {"fence": fence}

    reports.make_report = make_report  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "reports", reports)
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite://{tmp_path}/locks.db")
    return made


def test_the_page_works_as_pasted(made: list[str]) -> None:
    """One module of its blocks: a report, an invoice, and a report after the answer, which is
    made before anybody else gets the lock."""
    names: dict[str, Any] = {}
    for heading in ("Example", "The key", "Work that goes on after the answer"):
        exec("\n".join(code(PAGE, heading)), names)
    with TestClient(names["app"]) as client, holdfast.connect() as locks:
        first = client.post("/reports/may").json()["fence"]
        assert client.post("/customers/7/invoice").json()["customer"] == 7
        assert client.post("/reports/may/later").status_code == 202
        assert made == ["may", "may"]
        assert locks.show("report:may").fence > first
        with locks.acquire("report:may"):
            assert client.post("/reports/may").status_code == 409


def test_the_page_about_starlette_works_as_pasted(made: list[str]) -> None:
    """The block does what `holding` does."""
    names: dict[str, Any] = {}
    exec("\n".join(code(PAGE, "Starlette")), names)
    with TestClient(names["app"]) as client, holdfast.connect() as locks:
        assert client.post("/reports/may").json()["fence"] > 0
        with locks.acquire("report:may"):
            answer = client.post("/reports/may")
            assert (answer.status_code, answer.headers["Retry-After"]) == (409, "1")
    assert made == ["may"]
