"""Certificates for servers on loopback, which nobody else vouches for, and TLS before a server."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.engines.front import Front


class Certificate(NamedTuple):
    """The files of a certificate and of its private key."""

    public: Path
    secret: Path


def new_certificate(folder: Path, name: str = "server") -> Certificate:
    """One that is its own authority."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    command = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
        "-out", str(made.public), "-keyout", str(made.secret),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return made


class TLSFront(Front):
    """Speaks TLS in front of a server that does not. When `damaged` is set, what the server answers
    arrives as something that is not TLS."""

    def __init__(self, target: int, certificate: Certificate) -> None:
        super().__init__(target)
        self.damaged = False
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*certificate)

    def _join(self, client: socket.socket) -> None:
        under = client.dup()
        with suppress(OSError), under, self._context.wrap_socket(client, server_side=True) as safe:
            with socket.create_connection(("127.0.0.1", self._target)) as to:
                answers = threading.Thread(target=self._answer, args=(to, safe, under))
                answers.start()
                while asked := safe.recv(65536):
                    to.sendall(asked)
                to.shutdown(socket.SHUT_RDWR)
                answers.join(10)

    def _answer(self, to: socket.socket, client: ssl.SSLSocket, under: socket.socket) -> None:
        with suppress(OSError):
            while said := to.recv(65536):
                if self.damaged:
                    under.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
                else:
                    client.sendall(said)
