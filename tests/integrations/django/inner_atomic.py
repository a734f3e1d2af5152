"""Tests that Django runs inside of a project with ATOMIC_REQUESTS."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction
from django.http import HttpResponse
from django.test import TransactionTestCase, override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from holdfast.integrations.django import current_lease, guard, locks

seen: list[tuple[bool, bool]] = []
INSIDE = [(True, True), (True, False)]  # held, in a transaction: in the view, and at the commit
WITHOUT = [(True, False), (True, False)]


def look() -> HttpResponse:
    """Notes what is so now, and once more when the transaction is committed."""
    lease = current_lease()
    seen.append((lease.held, connection.in_atomic_block))
    transaction.on_commit(lambda: seen.append((lease.held, connection.in_atomic_block)))
    return HttpResponse("done")


@guard("k")
def atomic(request: Any) -> HttpResponse:
    """A view as ATOMIC_REQUESTS has it."""
    return look()


@guard("k")
@transaction.non_atomic_requests
def not_atomic(request: Any) -> HttpResponse:
    """A view without a transaction."""
    return look()


@guard("k")
def function() -> HttpResponse:
    """No view at all."""
    return look()


@guard("k")
def failing(request: Any) -> HttpResponse:
    """A view that fails."""
    look()
    raise KeyError("mine")


class Class(View):  # type: ignore[misc]
    """A view class whose `dispatch` is guarded."""

    @guard("k")
    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """All its methods."""
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: Any) -> HttpResponse:
        """One of them."""
        return look()


@method_decorator(guard("k"), name="dispatch")
class Decorated(View):  # type: ignore[misc]
    """The same in Django's own way."""

    def get(self, request: Any) -> HttpResponse:
        """One of its methods."""
        return look()


urlpatterns = [
    path("atomic/", atomic),
    path("not_atomic/", not_atomic),
    path("failing/", failing),
    path("class/", Class.as_view()),
    path("decorated/", Decorated.as_view()),
]


@override_settings(ROOT_URLCONF=__name__, HOLDFAST={"url": "memory://atomic"})
class AtomicTests(TransactionTestCase):  # type: ignore[misc]
    """The transaction is inside of the lock, for views that have one."""

    def see(self, url: str) -> list[tuple[bool, bool]]:
        """Returns what a view has noted."""
        seen.clear()
        self.client.get(url)
        return list(seen)

    def test_the_lock_is_held_until_the_commit(self) -> None:
        """For functions and classes; not for views that want no transaction, nor others."""
        assert self.see("/atomic/") == INSIDE
        assert self.see("/class/") == INSIDE
        assert self.see("/decorated/") == INSIDE
        assert self.see("/not_atomic/") == WITHOUT
        seen.clear()
        function()
        assert seen == WITHOUT

    def test_nothing_is_committed_if_the_view_fails(self) -> None:
        """And the lock is free."""
        with pytest.raises(KeyError):
            self.see("/failing/")
        assert seen == INSIDE[:1]
        assert locks.show("k").free
