"""Runs the tests that tooz brings for its drivers against ours, and prints each outcome.

    python -W ignore -m tests.integrations.tooz_suite holdfast:postgresql://…

A process of its own: tooz's tests need another runner than ours, and import what warns.
"""

from __future__ import annotations

import json
import os
import sys
import unittest
from typing import Any

# They need a group only to name what is led. Without groups they are run with these two calls
# doing nothing.
ELECTIONS = {
    "test_get_leader",
    "test_run_for_election",
    "test_run_for_election_multiple_clients",
    "test_run_for_election_multiple_clients_stand_down",
    "test_unwatch_elected_as_leader",
    "test_unwatch_elected_as_leader_callback_not_found",
}


class Outcomes(unittest.TestResult):
    """The outcome of each test, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, str] = {}

    def addSuccess(self, test: Any) -> None:
        self._add(test, "passed")

    def addSkip(self, test: Any, reason: str) -> None:
        self._add(test, f"skipped: {reason}")

    def addError(self, test: Any, err: Any) -> None:
        self._add(test, f"error: {err[1]}")

    def addFailure(self, test: Any, err: Any) -> None:
        self._add(test, f"failed: {err[1]}")

    def _add(self, test: Any, outcome: str) -> None:
        self.of[test.id().rpartition(".")[2]] = outcome


def main(url: str) -> None:
    """Run them all, and print a JSON object of the outcomes."""
    os.environ["TOOZ_TEST_URL"] = url
    from tooz.tests.test_coordination import TestAPI

    from holdfast.integrations.tooz import HoldfastDriver, _result

    outcomes = Outcomes()
    names = set(unittest.TestLoader().getTestCaseNames(TestAPI))
    unittest.TestSuite(TestAPI(name) for name in sorted(names - ELECTIONS)).run(outcomes)
    for call in ("create_group", "join_group"):
        setattr(HoldfastDriver, call, lambda *args: _result(None))
    unittest.TestSuite(TestAPI(name) for name in sorted(ELECTIONS)).run(outcomes)
    print(json.dumps(outcomes.of))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
