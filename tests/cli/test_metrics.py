"""`holdfast run --metrics` and `--metrics-file`."""

from __future__ import annotations

from urllib.request import urlopen

import pytest

from holdfast.cli.metrics import host_and_port
from holdfast.errors import BadOption
from tests.cli.program import Program, until
from tests.engines.base import free_port


def test_metrics_are_written_at_the_end(holdfast: Program) -> None:
    """What the run did is in the file, for the textfile collector."""
    path = holdfast.file.parent / "holdfast.prom"
    done = holdfast("run", "k", "--metrics-file", str(path), "--", "true")
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert 'holdfast_attempts_total{lock="",outcome="acquired"} 1.0' in text
    assert 'holdfast_hold_seconds_count{ending="released",lock=""} 1.0' in text
    assert 'holdfast_held{lock=""} 0.0' in text


def test_metrics_are_served_while_it_runs(holdfast: Program) -> None:
    """A scrape finds the lease that is held."""
    port = free_port()
    running = holdfast.start("run", "k", "--metrics", str(port), "--", "sleep", "60")

    def scraped() -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return 'holdfast_held{lock=""} 1.0' in answer.read().decode()
        except OSError:
            return False

    until(scraped, lambda: running.err)
    running.process.terminate()
    running.process.wait(30)


def test_a_port_that_is_taken_is_told(holdfast: Program) -> None:
    """Before anything is locked or run."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = holdfast("run", "k", "--metrics", str(taken.getsockname()[1]), "--", "echo", "no")
    assert done.stdout == ""
    assert "choose another port" in done.stderr


@pytest.mark.parametrize(
    ("address", "parts"),
    [("9400", ("127.0.0.1", 9400)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:2", ("::1", 2))],
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    """A port alone is on loopback."""
    assert host_and_port(address) == parts


@pytest.mark.parametrize("address", ["", "x", "host:", "1:99999", "9400²"])
def test_bad_addresses(address: str) -> None:
    """They are usage errors."""
    with pytest.raises(BadOption):
        host_and_port(address)
