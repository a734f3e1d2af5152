"""The same names with the same arguments as in the package itself."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.dropin.python_dynamodb_lock.lab import PACKAGES

NAMES = ["BaseDynamoDBLock", "DynamoDBLock", "DynamoDBLockClient", "DynamoDBLockError"]


def members(whose: str, name: str) -> dict[str, Any]:
    """The public members of a class, and those of its life."""
    kind = getattr(PACKAGES[whose], name)
    special = ("__init__", "__str__", "__enter__", "__exit__")
    return {
        member: found
        for member, found in inspect.getmembers(kind)
        if not member.startswith("_") or (member in special and hasattr(kind, member))
    }


def parameters(call: Any) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(call).parameters.values()]


@pytest.mark.parametrize("name", NAMES)
def test_everything_of_theirs_is_there(name: str) -> None:
    """With the same arguments and the same constants."""
    ours = members("ours", name)
    for member, found in members("theirs", name).items():
        assert member in ours, member
        if inspect.isfunction(found) or inspect.ismethod(found):
            assert parameters(ours[member]) == parameters(found), member
        elif isinstance(found, str):
            assert ours[member] == found, member


def test_what_is_beside_it() -> None:
    """Ours adds little, and on purpose."""
    extra = {
        (name, member)
        for name in NAMES
        for member in members("ours", name).keys() - members("theirs", name).keys()
    }
    assert extra <= {
        ("DynamoDBLockError", "UNKNOWN_ERROR"),
        ("DynamoDBLockError", "add_note"),
        ("DynamoDBLockClient", "abandon"),
    }


def test_a_module_of_the_same_name() -> None:
    """`python_dynamodb_lock.python_dynamodb_lock` is where most code imports it from."""
    from holdfast.dropin.python_dynamodb_lock import python_dynamodb_lock as module

    assert {name: getattr(module, name) for name in NAMES} == {
        name: getattr(PACKAGES["ours"], name) for name in NAMES
    }


def test_the_import_of_the_manual() -> None:
    """`from … import *` brings whatever it brings of the original: `datetime`, `time`, …"""
    theirs: dict[str, Any] = {}
    ours: dict[str, Any] = {}
    exec("from python_dynamodb_lock.python_dynamodb_lock import *", theirs)
    exec("from holdfast.dropin.python_dynamodb_lock.python_dynamodb_lock import *", ours)
    assert theirs.keys() - {"__builtins__"} == ours.keys() - {"__builtins__"}
    assert {"datetime", "time", "ClientError", "logger"} <= ours.keys()
    for name in theirs.keys() - {"__builtins__", "logger", *NAMES}:
        assert ours[name] is theirs[name], name
    assert type(ours["logger"]) is type(theirs["logger"])


@pytest.mark.parametrize("name", NAMES)
def test_the_constants(name: str) -> None:
    """Those that begin with an underscore too: programs read them."""
    ours, theirs = getattr(PACKAGES["ours"], name), getattr(PACKAGES["theirs"], name)
    for constant in dir(theirs):
        if constant.lstrip("_").isupper():
            assert getattr(ours, constant) == getattr(theirs, constant), constant
