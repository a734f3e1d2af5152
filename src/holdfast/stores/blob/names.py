"""From a key to the name of its object, and back.

A name is the percent-encoded key under the prefix, so no key escapes it: a slash becomes
`%2F`, and `..` is no folder with `.json` behind it. A name that would be too long for some
store is cut, and a digest of the key makes it the key's own; the object has the whole key.
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
    """The name of a key's object, without the prefix."""
    encoded = quote(key, safe="")
    if len(encoded) > LONGEST:
        encoded = f"{encoded[:KEPT]}{CUT}{sha256(key.encode()).hexdigest()}"
    return encoded + SUFFIX


def key_of(name: str) -> str | None:
    """The key whose object this is, as far as the name tells; None: not one of ours."""
    encoded = name.removesuffix(SUFFIX)
    if encoded == name:
        return None
    key = unquote(encoded.partition(CUT)[0], errors="replace")
    return key if CUT in encoded or name_of(key) == name else None


def start_of(prefix: str) -> str:
    """How the names of all keys with this prefix begin."""
    return quote(prefix, safe="")[:KEPT]


def before(start: str) -> str:
    """Something to list from, so that names with this start come after it. `.` and `..` are no
    names of objects: what is almost as large does."""
    if start not in (".", ".."):
        return start
    return start[:-1] + chr(ord(start[-1]) - 1) + "~"


def check_prefix(path: str) -> str:
    """The prefix in a URL's path, without slashes around it; or what is wrong with it."""
    prefix = path.strip("/")
    parts = prefix.split("/") if prefix else []
    if any(part in ("", ".", "..") for part in parts):
        raise BadURL(f"The prefix {prefix!r} has an empty part, . or .. between its slashes.")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in prefix) or "\\" in prefix:
        raise BadURL(f"The prefix {prefix!r} has a control character or a backslash in it.")
    if len(prefix.encode()) > LONGEST_PREFIX:
        raise BadURL(f"A prefix has at most {LONGEST_PREFIX} bytes.")
    return prefix
