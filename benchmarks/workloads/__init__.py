"""What is measured. A new one goes into this table."""

from benchmarks.harness import Workload
from benchmarks.workloads.contended import Contended
from benchmarks.workloads.crowd import HerdDamper
from benchmarks.workloads.distant import FarContended, FarPair, NearContended, NearPair
from benchmarks.workloads.handover import HandOver
from benchmarks.workloads.importing import Importing
from benchmarks.workloads.kept import Kept
from benchmarks.workloads.listing import Listing
from benchmarks.workloads.pair import ColdPair, WarmPair
from benchmarks.workloads.parallel import Coroutines, Threads
from benchmarks.workloads.readers import Readers
from benchmarks.workloads.requests import Requests
from benchmarks.workloads.starting import Starting
from benchmarks.workloads.together import TasksTogether, ThreadsTogether
from benchmarks.workloads.waiting import Waiting

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        WarmPair(), NearPair(), FarPair(), ColdPair(), Threads(), Coroutines(), ThreadsTogether(),
        TasksTogether(), Contended(),
        NearContended(), FarContended(), Waiting(), HandOver(), Readers(), Kept(),
        Listing(), Requests(), HerdDamper(), Importing(), Starting(),
    )
}  # fmt: skip
