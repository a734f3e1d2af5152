"""The two faces are mirrors: the same names, the same arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import holdfast
from holdfast import aio

PAIRS = [
    (holdfast.Locks, aio.Locks),
    (holdfast.Lease, aio.Lease),
    (holdfast.Leases, aio.Leases),
]
# Where `with` is, there is `async with`.
ASYNC_NAMES = {"__enter__": "__aenter__", "__exit__": "__aexit__"}
# What never talks to the store is not awaited.
NOT_AWAITED = {
    "share", "remaining", "check", "on_danger", "on_lost", "on_wanted", "guard", "count", "index",
    "alive", "lead", "once_per",
}  # fmt: skip


def public(kind: type) -> dict[str, Any]:
    """Its public members, and the two of the context manager."""
    return {
        name: member
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_") or name in {*ASYNC_NAMES, *ASYNC_NAMES.values()}
    }


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_same_names(blocking: type, asynchronous: type) -> None:
    """Nothing is on one side only."""
    names = {ASYNC_NAMES.get(name, name) for name in public(blocking)}
    assert names == set(public(asynchronous))


def parameters(call: Any) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(call).parameters.values()]


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_same_signatures(blocking: type, asynchronous: type) -> None:
    """The same arguments in the same order with the same defaults and types."""
    theirs = public(asynchronous)
    for name, member in public(blocking).items():
        other = theirs[ASYNC_NAMES.get(name, name)]
        if isinstance(member, property):
            assert isinstance(other, property), name
        elif callable(member):
            assert parameters(member) == parameters(other), name
            mine = {k: v for k, v in inspect.get_annotations(member).items() if k != "return"}
            yours = {k: v for k, v in inspect.get_annotations(other).items() if k != "return"}
            assert mine == yours, name


def test_connect() -> None:
    """Both are opened alike."""
    assert parameters(holdfast.connect) == parameters(aio.connect)


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_what_is_awaited(blocking: type, asynchronous: type) -> None:
    """Whatever talks to the store is awaited or iterated; whatever does not is not."""
    for name, member in public(asynchronous).items():
        if not inspect.isfunction(member):
            continue
        awaited = inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
        returns = str(inspect.get_annotations(member).get("return", ""))
        awaited = awaited or returns.startswith("Acquiring")
        assert awaited != (name in NOT_AWAITED), name


@pytest.mark.parametrize(("blocking", "asynchronous"), PAIRS)
def test_same_words(blocking: type, asynchronous: type) -> None:
    """What has a docstring on one side has one on the other."""
    theirs = public(asynchronous)
    for name, member in public(blocking).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            assert bool(member.__doc__) == bool(theirs[name].__doc__), name
