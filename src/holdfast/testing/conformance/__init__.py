"""One set of cases for every store and both faces, so that a third party's store can
prove itself too.

    from holdfast.testing.conformance import CASES, FACES, Target, run_case

    class MyTarget(Target):
        def open(self) -> Store: ...          # another client of the same data

    @pytest.mark.parametrize("face", FACES)
    @pytest.mark.parametrize("case", CASES)
    def test_my_store(case, face):
        run_case(case, MyTarget(), face)

A case is an async function of a `World`. For the blocking face every call is made in a
thread, so that the same case serves both.
"""

from holdfast.testing.conformance import (
    amend_cases,
    damage_cases,
    lease_cases,
    party_cases,
    queue_cases,
    scan_cases,
    store_cases,
    together_cases,
    trouble_cases,
    wait_cases,
)
from holdfast.testing.conformance.world import CASES, FACES, Face, Target, World, run_case

__all__ = [
    "CASES",
    "FACES",
    "Face",
    "Target",
    "World",
    "amend_cases",
    "damage_cases",
    "lease_cases",
    "party_cases",
    "queue_cases",
    "run_case",
    "scan_cases",
    "store_cases",
    "together_cases",
    "trouble_cases",
    "wait_cases",
]
