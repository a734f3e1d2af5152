"""The orchestrator's example is run as its README says."""

from __future__ import annotations

import os

import pytest

from tests.conformance.blob_targets import azure_url
from tests.engines.azurite import Azurite
from tests.engines.shared import shared
from tests.examples.story import tell_story


def orchestrate(*args: str) -> str:
    """What it said."""
    environment = {n: v for n, v in os.environ.items() if not n.startswith("HOLDFAST_")}
    patient = {"PAUSE_S": "1.2", "TTL_S": "4"}  # machines of tests are busy
    return tell_story("orchestrator", *args, env={**environment, **patient})


def check(output: str) -> None:
    """Two remotes by the first, none by the second, and each part once."""
    assert output.count("first: even: not computed yet. I start a remote.") == 1, output
    assert output.count("first: odd: not computed yet. I start a remote.") == 1, output
    assert "second: even: at work for" in output, output
    assert "second: odd: at work for" in output, output
    assert "second: the result is 2470." in output, output
    assert output.endswith("Each part was computed once.\n"), output


def test_on_this_machine() -> None:
    """One command, nothing to install: the locks are files in a directory."""
    check(orchestrate())


def test_on_azure() -> None:
    """The same with another URL: the locks are objects in a container."""
    check(orchestrate(azure_url(shared(Azurite))))


def test_a_store_that_no_remote_reaches() -> None:
    """It says that the orchestrator has failed, instead of waiting for what will not come."""
    with pytest.raises(AssertionError, match="ended before its remotes were at work"):
        orchestrate("memory://")
