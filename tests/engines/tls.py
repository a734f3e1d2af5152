"""A certificate for a server on loopback, which nobody else vouches for."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


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
