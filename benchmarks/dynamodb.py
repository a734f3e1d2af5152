"""The DynamoDB store beside python-dynamodb-lock: requests, which cost money, and times.

Starts a DynamoDB Local of its own. The other library is measured if it is installed:
pip install python-dynamodb-lock.
"""

from __future__ import annotations

import importlib
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from datetime import timedelta
from typing import Any

import holdfast
from tests.engines.dynamodb import DynamoDBLocal, session

OURS, THEIRS = "holdfast-bench", "python-dynamodb-lock-bench"
CALLS, CONTENDERS, TURNS, WORK_S = 200, 10, 5, 0.02
WRITES = {"PutItem", "UpdateItem", "DeleteItem"}
DOLLARS_PER_READ, DOLLARS_PER_WRITE = 0.125e-6, 0.625e-6

Take = Callable[[str], AbstractContextManager[Any]]


def main() -> None:
    """Print the table."""
    if not DynamoDBLocal.installed():
        print("DynamoDB: there is no DynamoDB Local here.")
        return
    with DynamoDBLocal() as server:
        assert isinstance(server, DynamoDBLocal)
        libraries = [Holdfast(server.endpoint)]
        libraries += [TheOther(server.endpoint)] if _other() else []
        print("### DynamoDB Local: requests per acquire and release, and what they would cost\n")
        print(
            f"| | cold | warm | ms, warm | ms of CPU | {CONTENDERS} contenders | s, all of them "
            "| dollars per million, warm | with contenders |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for library in libraries:
            print(library.row())
            library.close()


class Library:
    """One library on a table of its own, with its requests counted."""

    name: str

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def count(self, client: Any) -> None:
        """Count what this client sends."""
        client.meta.events.register("before-send.dynamodb.*", self._note)

    def _note(self, event_name: str, **_: Any) -> None:
        self.seen[event_name.rpartition(".")[2]] += 1

    def open(self) -> Take:
        """What takes a lock, for one contender."""
        raise NotImplementedError

    def close(self) -> None:
        """Done."""

    def row(self) -> str:
        """The whole measurement."""
        take = self.open()
        cold = self._requests(lambda: _use(take, "cold"))
        warm = self._requests(lambda: _use(take, "cold"))
        took = []
        cpu = time.process_time()
        for _ in range(CALLS):
            started = time.perf_counter()
            _use(take, "cold")
            took.append(time.perf_counter() - started)
        cpu = (time.process_time() - cpu) / CALLS
        started = time.perf_counter()
        crowd = self._requests(self._contend)
        crowd_s = time.perf_counter() - started
        pairs = CONTENDERS * TURNS
        return (
            f"| {self.name} | {_told(cold)} | {_told(warm)} | {statistics.median(took) * 1e3:.1f} "
            f"| {cpu * 1e3:.1f} | {_told(crowd, pairs)} | {crowd_s:.1f} | {_dollars(warm):.2f} "
            f"| {_dollars(crowd) / pairs:.2f} |"
        )

    def _requests(self, call: Callable[[], object]) -> Counter[str]:
        self.seen.clear()
        call()
        return Counter(self.seen)

    def _contend(self) -> None:
        takes = [self.open() for _ in range(CONTENDERS)]
        self.seen.clear()
        threads = [threading.Thread(target=_take_turns, args=(take,)) for take in takes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


class Holdfast(Library):
    """Ours."""

    name = "holdfast"

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._options: dict[str, Any] = {"table": OURS, "endpoint_url": endpoint}
        self._opened: list[holdfast.Locks] = []
        with closing(holdfast.connect(session(), **self._options)) as locks:
            locks.setup()

    def open(self) -> Take:
        locks = holdfast.connect(session(), ttl=30, **self._options)
        self._opened.append(locks)
        self.count(locks._client.store.table.client)  # type: ignore[attr-defined]
        return locks.acquire

    def close(self) -> None:
        for locks in self._opened:
            locks.close()


class TheOther(Library):
    """python-dynamodb-lock, told to look again as often as ours does in the end."""

    name = "python-dynamodb-lock"

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._module = _other()
        self._endpoint = endpoint
        client = session().client("dynamodb", endpoint_url=endpoint)
        self._module.DynamoDBLockClient.create_dynamodb_table(client, table_name=THEIRS)
        self._opened: list[Any] = []

    def open(self) -> Take:
        resource = session().resource("dynamodb", endpoint_url=self._endpoint)
        self.count(resource.meta.client)
        client = self._module.DynamoDBLockClient(resource, table_name=THEIRS)
        self._opened.append(client)
        patience = {"retry_period": timedelta(seconds=1), "retry_timeout": timedelta(minutes=5)}
        return lambda key: client.acquire_lock(key, **patience)

    def close(self) -> None:
        for client in self._opened:
            client.close()


def _other() -> Any:
    try:
        return importlib.import_module("python_dynamodb_lock.python_dynamodb_lock")
    except ImportError:
        return None


def _use(take: Take, key: str) -> None:
    with take(key):
        pass


def _take_turns(take: Take) -> None:
    for _ in range(TURNS):
        with take("contended"):
            time.sleep(WORK_S)


def _told(requests: Counter[str], pairs: int = 1) -> str:
    writes = sum(number for name, number in requests.items() if name in WRITES)
    reads = requests.total() - writes
    return f"{reads / pairs:.3g} reads + {writes / pairs:.3g} writes"


def _dollars(requests: Counter[str]) -> float:
    """Per million; a look of a waiter's (BatchGetItem) is not a consistent read: half price."""
    looks = requests["BatchGetItem"]
    writes = sum(number for name, number in requests.items() if name in WRITES)
    reads = requests.total() - writes - looks / 2
    return 1e6 * (reads * DOLLARS_PER_READ + writes * DOLLARS_PER_WRITE)


if __name__ == "__main__":
    main()
