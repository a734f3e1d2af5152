"""From a key to the name of its object, and back.

A name is the percent-encoded key and `.json`, under the prefix. So no key leads out of the prefix:
a slash becomes `%2F`, and `...json` is no folder. A name that would be too long for some service is
cut, and a digest of the key makes it unique; the object itself contains the whole key.
"""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import quote, unquote

from holdfast.errors import BadURL

SUFFIX = ".json"
# A name in a folder has at most 255 bytes, an object's whole path 1024.
LONGEST = 200
KEPT = 120
LONGEST_PREFIX = 700
# Never in an encoded key.
CUT = "+"
CLOCK = ".holdfast-clock"


def name_of(key: str) -> str:
    """Returns the name of a key's object, without the prefix."""
    encoded = quote(key, safe="")
    if len(encoded) > LONGEST:
        encoded = f"{encoded[:KEPT]}{CUT}{sha256(key.encode()).hexdigest()}"
    return encoded + SUFFIX


def key_of(name: str) -> str | None:
    """Returns the key of an object, as far as the name tells; None if it is not one of ours."""
    encoded = name.removesuffix(SUFFIX)
    if encoded == name:
        return None
    key = unquote(encoded.partition(CUT)[0], errors="replace")
    return key if CUT in encoded or name_of(key) == name else None


def start_of(prefix: str) -> str:
    """Returns how the names of all keys with this prefix begin."""
    return quote(prefix, safe="")[:KEPT]


def before(start: str) -> str:
    """Returns where to start a listing, so that all names with this start come after it. `.` and
    `..` cannot be names, so the next smaller name is used."""
    if start not in (".", ".."):
        return start
    return start[:-1] + chr(ord(start[-1]) - 1) + "~"


def check_prefix(path: str) -> str:
    """Returns the prefix in a URL's path, without slashes around it. Raises `BadURL`."""
    prefix = path.strip("/")
    parts = prefix.split("/") if prefix else []
    if any(part in ("", ".", "..") for part in parts):
        raise BadURL(f"The prefix {prefix!r} has an empty part, . or .. between its slashes.")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in prefix) or "\\" in prefix:
        raise BadURL(f"The prefix {prefix!r} has a control character or a backslash in it.")
    if len(prefix.encode()) > LONGEST_PREFIX:
        raise BadURL(f"A prefix has at most {LONGEST_PREFIX} bytes.")
    return prefix
