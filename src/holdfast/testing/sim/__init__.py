"""The deterministic simulator: the core's own steps in a world made from a seed.

    options   a seed and what narrows it down                           plan
    world     true time, clients, a store, a network, trouble           world, client, network,
                                                                        stores, nemesis, work
    ledger    what really happens, told to the checkers                 ledger, checks/
    history   a readable timeline; shrunk when a rule is broken         timeline, shrink

The core knows nothing of it: `process` answers its effects as the real drivers do.
`exhaustive` tries every schedule of small scopes instead of random ones.
"""

from holdfast.testing.sim.checker import Checker, Violation
from holdfast.testing.sim.plan import Options
from holdfast.testing.sim.runs import History, simulate
from holdfast.testing.sim.shrink import shrink

__all__ = ["Checker", "History", "Options", "Violation", "shrink", "simulate"]
