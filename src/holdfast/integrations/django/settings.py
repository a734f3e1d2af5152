"""From settings.HOLDFAST to a store URL and the options of `connect`."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from msgspec import Struct

from holdfast.api.store_source import URL_VARIABLE
from holdfast.core.discreet import hidden
from holdfast.errors import UsageError
from holdfast.runtime.frames import without_frames
from holdfast.stores.url import hidden_options

SETTING = "HOLDFAST"
PLACES = ("url", "database", "cache")
# Options of `connect` that are not the store's. (The store's own may also stand in its URL.)
CLIENT_OPTIONS = frozenset(
    (
        "owner", "ttl", "request_timeout", "store_patience", "long_wait", "beats_per_second",
        "pass_on", "on_event", "sinks",
    )
)  # fmt: skip


class BadSettings(UsageError, ImproperlyConfigured):  # type: ignore[misc]
    """settings.HOLDFAST cannot work."""


class Place(Struct, frozen=True):
    """Where the locks of this project are, and how to connect."""

    kind: str  # one of PLACES
    alias: str  # of the database or the cache
    url: str
    options: dict[str, Any]

    @property
    def full_url(self) -> str:
        """Returns the URL with the store's options, for programs that are given only a URL."""
        names = self.options.keys() - CLIENT_OPTIONS
        return with_query(self.url, {name: self.options[name] for name in sorted(names)})


def place() -> Place:
    """Returns what settings.HOLDFAST says, checked; without a place in it, $HOLDFAST_URL."""
    try:
        return _place()
    except BadSettings as trouble:
        without_frames(trouble)  # whose variables have passwords
        raise


def _place() -> Place:
    given = getattr(settings, SETTING, {})
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise BadSettings(f'{SETTING} is a dict, as in {SETTING} = {{"database": "default"}}.')
    options = hidden_options(dict(given))
    named = [name for name in PLACES if name in options]
    if len(named) > 1:
        raise BadSettings(f"{SETTING} names {' and '.join(named)}: keep one of them.")
    if not named:
        return Place("url", "", _url_from_environment(), options)
    (kind,) = named
    name = options.pop(kind)
    if not isinstance(name, str) or not name:
        raise BadSettings(f"{SETTING}[{kind!r}] is a text that is not empty.")
    if kind == "url":
        return Place("url", "", hidden(name), options)
    from holdfast.integrations.django import project_urls

    of_alias = project_urls.of_database if kind == "database" else project_urls.of_cache
    return Place(kind, name, hidden(of_alias(name)), options)


def with_query(url: str, more: dict[str, Any]) -> str:
    """Returns the URL with more options."""
    if not more:
        return url
    words = {True: "yes", False: "no"}
    said = {name: words[x] if isinstance(x, bool) else x for name, x in more.items()}
    return hidden(f"{url}{'&' if '?' in url else '?'}{urlencode(said)}")


def _url_from_environment() -> str:
    url = os.environ.get(URL_VARIABLE)
    if url:
        return hidden(url)
    # connect() without a URL opens a file of this machine, which other machines do not see.
    raise BadSettings(
        f'Say where the locks are: {SETTING} = {{"database": "default"}} in the settings uses a '
        f'database of the project, {{"cache": "default"}} a Redis cache, and {{"url": "…"}} or '
        f"${URL_VARIABLE} any other store."
    )
