"""`guard`, `locks` and `aio_locks` in a Django process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

import holdfast
from holdfast import Busy, UsageError
from holdfast.api.default import LazyLocks
from holdfast.integrations.django import aio_locks, current_lease, guard, locks
from tests.helpers import unique


@guard("report:{month}", busy="skip")
def blocking(request: HttpRequest, month: str) -> HttpResponse:
    """A view."""
    return HttpResponse(current_lease().key)


@guard("report:{month}", busy="skip")
async def awaited(request: HttpRequest, month: str) -> HttpResponse:
    """An async view."""
    return HttpResponse(current_lease().key)


class Report(View):  # type: ignore[misc]
    """A view class."""

    @guard("report:{month}", busy="skip")
    def get(self, request: HttpRequest, month: str) -> HttpResponse:
        """One of its methods."""
        return HttpResponse(current_lease().key)


@method_decorator(guard("report:{month}", busy="skip"), name="dispatch")
class WholeReport(View):  # type: ignore[misc]
    """A view class that is guarded as a whole, in Django's own way."""

    def get(self, request: HttpRequest, month: str) -> HttpResponse:
        """One of its methods."""
        return HttpResponse(current_lease().key)


class DecoratedReport(View):  # type: ignore[misc]
    """A view class with a method that is guarded in Django's own way."""

    @method_decorator(guard("report:{month}", busy="skip"))
    def get(self, request: HttpRequest, month: str) -> HttpResponse:
        """One of its methods."""
        return HttpResponse(current_lease().key)


urlpatterns = [
    path("blocking/<month>/", blocking),
    path("awaited/<month>/", awaited),
    path("class/<month>/", Report.as_view()),
    path("whole/<month>/", WholeReport.as_view()),
    path("decorated/<month>/", DecoratedReport.as_view()),
]


@pytest.fixture
def urls(change: Any) -> None:
    """A site with these views."""
    change(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"])


@pytest.mark.parametrize("view", ["blocking", "awaited", "class", "whole", "decorated"])
def test_views(urls: None, view: str) -> None:
    """A view runs under its lock, and answers 409 while another holds it; an async one also under
    WSGI, where each request has an event loop of its own."""
    client, url = Client(), f"/{view}/may/"
    assert client.get(url).content == b"report:may"
    with locks.acquire("report:may"):
        answer = client.get(url)
        assert (answer.status_code, answer["Retry-After"]) == (409, "1")
        assert client.get(f"/{view}/june/").content == b"report:june"
    assert client.get(url).status_code == 200


@pytest.mark.parametrize("view", ["function", "class"])
def test_rest_framework(change: Any, view: str) -> None:
    """Its views are called with a request of its own."""
    change(ROOT_URLCONF="tests.integrations.django.rest_views", ALLOWED_HOSTS=["*"])
    change(REST_FRAMEWORK={"UNAUTHENTICATED_USER": None})  # which would be a model
    client, url = Client(), f"/{view}/may/"
    assert client.get(url).content == b"report:may"
    with locks.acquire("report:may"):
        assert client.get(url).status_code == 409


def test_async_views_on_one_loop(urls: None) -> None:
    """As under ASGI; `aio_locks` are the same locks."""

    async def main() -> None:
        client = AsyncClient()
        async with aio_locks.acquire("report:may"):
            assert (await client.get("/awaited/may/")).status_code == 409
            assert locks.try_acquire("report:may") is None
        answers = [client.get("/awaited/may/") for _ in range(5)]
        assert {answer.status_code for answer in await asyncio.gather(*answers)} >= {200}

    asyncio.run(main())


def test_functions(change: Any) -> None:
    """A function that is skipped returns None; `raise` raises."""

    @guard("job:{number}", busy="skip")
    def skipping(number: int) -> int:
        return number

    @guard("job:{number}", busy="raise")
    def raising(number: int) -> int:
        return number

    assert (skipping(1), raising(1)) == (1, 1)
    with locks.acquire("job:1"):
        assert skipping(1) is None
        with pytest.raises(Busy):
            raising(1)


def test_mistakes_show_when_the_module_is_loaded(change: Any) -> None:
    """An argument that there is not, and an option that there is not."""
    with pytest.raises(UsageError, match="'mont'"):
        guard("report:{mont}")(lambda month: None)
    with pytest.raises(TypeError, match="tll"):
        guard("report", tll=5)(lambda month: None)


def test_nothing_is_connected_before_it_is_used(change: Any) -> None:
    """Not by tools that look at a module's names, either."""
    change(HOLDFAST={"url": "redis://127.0.0.1:1"})
    lazy: Any = locks
    assert isinstance(lazy, LazyLocks)
    assert not hasattr(lazy, "__wrapped__")
    assert "LazyLocks" in repr(lazy)
    assert lazy._locks is None
    assert isinstance(lazy(), holdfast.Locks)


def test_a_changed_setting_is_noticed(change: Any) -> None:
    """As with `override_settings` in tests."""
    url = f"memory://{unique()}"
    with holdfast.connect(url) as others, others.acquire("k"):
        assert locks.try_acquire("k") is not None
        change(HOLDFAST={"url": url})
        assert locks.try_acquire("k") is None


def test_fixtures_are_behind_it(change: Any, holdfast_locks: holdfast.Locks) -> None:
    """Those of the plugin for pytest, whether the client was made before or not."""
    with holdfast_locks.acquire("k"):
        assert locks.try_acquire("k") is None
        assert asyncio.run(aio_locks.try_acquire("k")) is None
