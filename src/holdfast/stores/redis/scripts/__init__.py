"""The scripts that run inside Redis, one `.lua` file per command.

A script is sent by its hash (EVALSHA). A server that does not know it, because it was
restarted, failed over or flushed, says NOSCRIPT, and gets the source (EVAL) once.

Claim, renew and free start with fast paths for the usual cases, `fast_*.lua`. What these do, the
full rules after them would do as well: `without_fast_paths` leaves them out.
"""

from __future__ import annotations

import re
from functools import cached_property
from hashlib import sha1
from pathlib import Path

from holdfast.stores.redis.resp import bulk

_RULES = ("index", "record", "queue_head", "queue", "rules")
# A text that is broken over two lines to keep them short. Lua would join it in every run.
_BROKEN_TEXT = re.compile(rb"' \.\.\n *'")
# All files at once: a release that is installed later brings others.
_TEXTS = {
    file.stem: file.read_bytes()
    for file in Path(__file__).parent.iterdir()
    if file.suffix == ".lua"
}


class Script:
    """One script: some shared parts, then its own. It is put together when it is needed: a short
    command needs two of them."""

    def __init__(self, name: str, *parts: str) -> None:
        self.name = name
        self.parts = ("start", *parts, name)

    @cached_property
    def source(self) -> bytes:
        """What the server runs."""
        return _BROKEN_TEXT.sub(b"", b"\n".join([_TEXTS[part] for part in self.parts]))

    @cached_property
    def sha(self) -> bytes:
        """How the server calls it."""
        return sha1(self.source, usedforsecurity=False).hexdigest().encode()

    @cached_property
    def by_hash(self) -> bytes:
        """How a request starts that names the script."""
        return bulk(b"EVALSHA") + bulk(self.sha)

    @property
    def in_full(self) -> bytes:
        """How a request starts that brings it along."""
        return bulk(b"EVAL") + bulk(self.source)

    @cached_property
    def without_fast_paths(self) -> Script:
        """The same with the full rules only."""
        parts = dict.fromkeys(part for part in self.parts[1:-1] if not part.startswith("fast_"))
        return Script(self.name, *parts) if len(parts) < len(self.parts) - 2 else self


CLAIM = Script(
    "claim",
    "index",
    "fast_claim",
    "queue_head",
    "fast_turn",
    "fast_join",
    "record",
    "queue",
    "rules",
    "past",
)
RENEW = Script("renew", "fast_renew", *_RULES)
FREE = Script("free", "heirs", "fast_free", *_RULES)
OFFER = Script("offer", *_RULES)
TAKE = Script("take", *_RULES, "past")
EVICT = Script("evict", *_RULES, "past")
LOAD = Script("load")
SWAP = Script("swap", "index", "record")
SCAN = Script("scan", "index", "record")
INDEX_ADD = Script("index_add", "index", "record")

ALL = (CLAIM, RENEW, FREE, OFFER, TAKE, EVICT, LOAD, SWAP, SCAN, INDEX_ADD)
