"""Known-bad variants of the protocol. The simulator must catch every one, or it is blind.

`within` is the number of seeds, from 0 on, in which a variant must be caught; it is several
times what it took when it was written.
"""

from tests.sim.mutants import clocks, cohorts, gates, keeping, law, patterns, writes
from tests.sim.mutants.base import MUTANTS, Mutant

__all__ = [
    "MUTANTS",
    "Mutant",
    "clocks",
    "cohorts",
    "gates",
    "keeping",
    "law",
    "patterns",
    "writes",
]
