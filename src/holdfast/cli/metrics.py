"""`holdfast run --metrics` and `--metrics-file`: the metrics of one run, for Prometheus."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from holdfast.cli.session import tell
from holdfast.errors import BadOption, Misconfigured
from holdfast.extras import needed


@contextlib.contextmanager
def exported(address: str | None, path: str | None) -> Iterator[list[Any]]:
    """Yields the sinks of a run. Their metrics are served at the address until the end of the
    block, and then written to the file."""
    if address is None and path is None:
        yield []
        return
    with needed("--metrics", "prometheus"):
        from prometheus_client import CollectorRegistry, write_to_textfile

    from holdfast.observe.prometheus import PrometheusSink

    registry = CollectorRegistry()
    with contextlib.ExitStack() as stack:
        if address is not None:
            stack.enter_context(_served(address, registry))
        try:
            yield [PrometheusSink(registry=registry)]
        finally:
            if path is not None:
                try:
                    write_to_textfile(path, registry)
                except OSError as exc:
                    tell(f"the metrics could not be written to {path}: {exc.strerror}")


@contextlib.contextmanager
def _served(address: str, registry: Any) -> Iterator[None]:
    from prometheus_client import start_http_server

    host, port = host_and_port(address)
    try:
        server, _ = start_http_server(port, host, registry=registry)
    except OSError as exc:
        raise Misconfigured(
            f"The metrics cannot be served on {host}:{port} ({exc.strerror}): choose another port."
        ) from exc
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def host_and_port(address: str) -> tuple[str, int]:
    """Returns the parts of `9400` or `127.0.0.1:9400`. Without a host it is loopback."""
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadOption(f"{address!r} is neither a port nor HOST:PORT.")
    return host.strip("[]") or "127.0.0.1", int(port)
