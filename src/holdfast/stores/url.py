"""Store URLs: taken apart, and never shown with their secrets."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from msgspec import Struct

from holdfast.core.discreet import hidden
from holdfast.errors import BadURL

V = TypeVar("V")

# Compiled by `re` when they are first needed: most programs have nothing to redact.
_SECRET = r"(?i)pass|pwd|secret|token|key|auth|credential|signature|sig$"
# Up to the last @: an unescaped / or @ in a password must not bring the rest of it to light.
_USERINFO = r"(?<=://)[^/\s]\S*@"
# Whose URLs have a path, and no user.
_FILES = ("sqlite", "file")
_QUERY_VALUE = r"([?&;])([^=&\s]+)=([^&\s]*)"


class StoreURL(Struct, frozen=True, repr_omit_defaults=True):
    """A store's address in its parts."""

    scheme: str
    text: str
    host: str = ""
    port: int | None = None
    user: str | None = None
    password: str | None = None
    path: str = ""
    options: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"StoreURL({redact(self.text)!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("text", redact(self.text))]

    __str__ = __repr__


def parse(text: str) -> StoreURL:
    """Returns the parts of a URL, or raises `BadURL` with what is wrong."""
    text = hidden(text)
    scheme, colon = text.partition(":")[:2]
    if not colon or not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9+.-]*", scheme):
        raise BadURL(
            f"{shown(text)!r} is not a store URL: it starts with a scheme, as in "
            f"sqlite:///var/lib/app/locks.db"
        )
    url = _parsed(scheme.lower(), text)
    if url is None:
        raise BadURL(
            f"This {scheme}: URL cannot be parsed: a port is a number, an IPv6 address "
            "stands in brackets, and / @ : ? # % in a password are written as %2F and so "
            "on."
        )
    return url


def _parsed(scheme: str, text: str) -> StoreURL | None:
    """Returns None if the URL cannot be taken apart. Nothing is raised here, because a traceback
    would show its parts."""
    from urllib.parse import parse_qsl, unquote, urlsplit

    try:
        parts = urlsplit(str(text))
        if parts.password and "@" in parts.path:  # the end of a password with a / in it
            return None
        hosts = parts.netloc.rpartition("@")[2]
        several = "," in hosts
        return StoreURL(
            scheme=scheme,
            text=text,
            host=hosts if several else parts.hostname or "",
            port=None if several else parts.port,
            user=unquote(parts.username) if parts.username else None,
            password=hidden(unquote(parts.password)) if parts.password else None,
            path=unquote(parts.path),
            options=hidden_options(dict(parse_qsl(parts.query, keep_blank_values=True))),
        )
    except ValueError:
        return None


def hidden_options(options: dict[str, V]) -> dict[str, V]:
    """Returns a store's options, with the secret ones hidden from any `repr`."""
    return {name: hidden(x) if re.search(_SECRET, name) else x for name, x in options.items()}


def shown(url: str) -> str:
    """Returns what was given as a URL, whatever it is, without its secrets."""
    scheme, there, rest = url.partition("://")
    if there and (scheme.lower() in _FILES or not rest.startswith("/")):
        return redact(url)
    # Not what it should be: all before the last @ may be a password.
    _, at, rest = url.rpartition("@")
    return ("***@" if at else "") + redact(rest)


def redact(text: Any) -> str:
    """Returns a URL, or a message with URLs in it, without user info and secret options."""
    return re.sub(_USERINFO, "***@", re.sub(_QUERY_VALUE, _redact_option, str(text)))


def _redact_option(match: re.Match[str]) -> str:
    before, name, value = match.groups()
    return f"{before}{name}={'***' if re.search(_SECRET, name) else value}"
