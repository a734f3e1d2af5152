"""Certificates for servers on loopback, which nobody else vouches for, and TLS before a server."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self


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


class TLSFront:
    """Speaks TLS in front of a server that does not. Its own port is `port`; when `damaged` is
    set, what the server answers arrives as something that is not TLS."""

    def __init__(self, target: int, certificate: Certificate) -> None:
        self.damaged = False
        self._target = target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                plain, _ = self._listener.accept()
                threading.Thread(target=self._join, args=(plain,), daemon=True).start()

    def _join(self, plain: socket.socket) -> None:
        under = plain.dup()
        with suppress(OSError), under, self._context.wrap_socket(plain, server_side=True) as client:
            with socket.create_connection(("127.0.0.1", self._target)) as to:
                answers = threading.Thread(target=self._answer, args=(to, client, under))
                answers.start()
                while asked := client.recv(65536):
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
