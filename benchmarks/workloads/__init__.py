"""What is measured. A new one goes into this table."""

from benchmarks.harness import Workload
from benchmarks.workloads.contended import Contended
from benchmarks.workloads.crowd import HerdDamper
from benchmarks.workloads.handover import HandOver
from benchmarks.workloads.importing import Importing
from benchmarks.workloads.kept import Kept
from benchmarks.workloads.listing import Listing
from benchmarks.workloads.pair import ColdPair, WarmPair
from benchmarks.workloads.parallel import Coroutines, Threads
from benchmarks.workloads.readers import Readers
from benchmarks.workloads.requests import Requests

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        WarmPair(), ColdPair(), Threads(), Coroutines(), Contended(), HandOver(), Readers(),
        Kept(), Listing(), Requests(), HerdDamper(), Importing(),
    )
}  # fmt: skip
