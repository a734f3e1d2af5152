"""TLS to MySQL and MariaDB, from a URL's options.

SQLAlchemy hands `ssl_ca=…` and its like to the driver as a dictionary. PyMySQL makes a context of
it, by the rules that are followed here; aiomysql wants the context itself.
"""

from __future__ import annotations

import ssl
from typing import Any

from sqlalchemy import URL
from sqlalchemy.util import asbool

from holdfast.errors import Misconfigured

NAMES = ("ssl_ca", "ssl_capath", "ssl_cert", "ssl_key", "ssl_cipher", "ssl_check_hostname")


def tls_of(url: URL) -> tuple[URL, dict[str, Any]]:
    """The address without these options, and what to tell the driver instead."""
    given = {name: url.query[name] for name in NAMES if name in url.query}
    if not given:
        return url, {}
    try:
        context = _context(**{name.removeprefix("ssl_"): value for name, value in given.items()})
    except (OSError, ValueError) as exc:
        names = ", ".join(f"{name}={value}" for name, value in given.items())
        raise Misconfigured(f"No TLS connection can be made with {names}: {exc}.") from exc
    return url.difference_update_query(NAMES), {"ssl": context}


def _context(
    ca: Any = None,
    capath: Any = None,
    cert: Any = None,
    key: Any = None,
    cipher: Any = None,
    check_hostname: Any = True,
) -> ssl.SSLContext:
    trusts = bool(ca or capath)
    context = ssl.create_default_context(cafile=ca, capath=capath)
    # The certificates that a MySQL server makes for itself are not strictly correct.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = trusts and asbool(check_hostname)
    context.verify_mode = ssl.CERT_REQUIRED if trusts else ssl.CERT_NONE
    if cert:
        context.load_cert_chain(cert, key)
    if cipher:
        context.set_ciphers(cipher)
    return context
