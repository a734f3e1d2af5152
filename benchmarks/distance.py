"""A network between a client and an engine: every request arrives later by a round trip.

Loopback flatters whoever sends many requests or spins. The proxy is a process of its own, so that
it takes nothing of the client's processor time:

    python -m benchmarks.distance TARGET_PORT ROUND_TRIP_SECONDS
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from benchmarks.sites import Place


@contextmanager
def far_away(place: Place, round_trip_s: float) -> Iterator[Place]:
    """Returns the same place with a round trip more between it and its clients."""
    words = [sys.executable, "-m", "benchmarks.distance", str(place.port), str(round_trip_s)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            yield place.at(int(proxy.stdout.readline()))
        finally:
            proxy.kill()


def serve(target: int, round_trip_s: float) -> None:
    """Take connections until killed."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        while True:
            client, _ = listening.accept()
            server = socket.create_connection(("127.0.0.1", target))
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _start(client, server, round_trip_s)
            _start(server, client, 0.0)


def _start(source: socket.socket, sink: socket.socket, delay_s: float) -> None:
    threading.Thread(target=_pump, args=(source, sink, delay_s), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, delay_s: float) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            if delay_s:
                time.sleep(delay_s)
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]))
