"""What is measured. A new one goes into this table."""

from benchmarks.harness import Workload
from benchmarks.workloads.contended import Apart, Contended
from benchmarks.workloads.crowd import HerdDamper
from benchmarks.workloads.distant import (
    FarContended,
    FarPair,
    FarTasksTogether,
    FarThreadsTogether,
    NearContended,
    NearPair,
    NearTasksTogether,
    NearThreadsTogether,
)
from benchmarks.workloads.handover import HandOver
from benchmarks.workloads.importing import Importing
from benchmarks.workloads.kept import Kept
from benchmarks.workloads.listing import Listing
from benchmarks.workloads.pair import ColdPair, WarmPair
from benchmarks.workloads.parallel import Coroutines, Threads
from benchmarks.workloads.queued import LongQueue
from benchmarks.workloads.readers import Readers
from benchmarks.workloads.requests import Requests
from benchmarks.workloads.starting import Starting
from benchmarks.workloads.together import TasksTogether, ThreadsTogether
from benchmarks.workloads.waiting import Idle, Waiting, WaitingApart, WaitingThreads

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        WarmPair(), NearPair(), FarPair(), ColdPair(), Threads(), Coroutines(),
        ThreadsTogether(), NearThreadsTogether(), FarThreadsTogether(),
        TasksTogether(), NearTasksTogether(), FarTasksTogether(),
        Contended(), NearContended(), FarContended(), Apart(), HandOver(),
        Waiting(), WaitingApart(), WaitingThreads(), Idle(), LongQueue(), Readers(), Kept(),
        Listing(), Requests(), HerdDamper(), Importing(), Starting(),
    )
}  # fmt: skip
