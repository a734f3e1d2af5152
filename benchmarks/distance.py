"""A network between a client and an engine: every request arrives later by a round trip.

Loopback flatters whoever sends many requests or spins. The proxy is a process of its own, so that
it takes nothing of the client's processor time. It also counts the requests:

    python -m benchmarks.distance TARGET_PORT ROUND_TRIP_SECONDS
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what the proxy does not need would only make it start later
    from benchmarks.sites import Place


@dataclass(frozen=True)
class Far:
    """A place behind a network, and how many requests have gone there."""

    place: Place
    count: Callable[[], int]


@contextmanager
def far_away(place: Place, round_trip_s: float) -> Iterator[Far]:
    """Returns the same place with a round trip more between it and its clients."""
    words = [sys.executable, "-m", "benchmarks.distance", str(place.port), str(round_trip_s)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as proxy:
        read, write = proxy.stdout, proxy.stdin
        assert read is not None
        assert write is not None

        def count() -> int:
            write.write("count\n")
            write.flush()
            return int(read.readline())

        try:
            yield Far(place.at(int(read.readline())), count)
        finally:
            proxy.kill()


def serve(target: int, round_trip_s: float) -> None:
    """Take connections until killed. For each line that comes in, say how many requests passed."""
    counts: list[list[int]] = []  # of each connection, which one thread adds to
    threading.Thread(target=_tell, args=(counts,), daemon=True).start()
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        _say(listening.getsockname()[1])
        while True:
            client, _ = listening.accept()
            server = socket.create_connection(("127.0.0.1", target))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            counts.append([0])
            _start(client, server, round_trip_s, counts[-1])
            _start(server, client, 0.0, [0])


def _tell(counts: list[list[int]]) -> None:
    for _ in sys.stdin:
        _say(sum(count for [count] in counts))


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def _start(source: socket.socket, sink: socket.socket, delay_s: float, count: list[int]) -> None:
    threading.Thread(target=_pump, args=(source, sink, delay_s, count), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, delay_s: float, count: list[int]) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            count[0] += 1
            if delay_s:
                time.sleep(delay_s)
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]))
