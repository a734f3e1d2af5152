"""The scripts that run inside Redis, one `.lua` file per command.

A script is sent by its hash (EVALSHA). A server that does not know it, because it was
restarted, failed over or flushed, says NOSCRIPT, and gets the source (EVAL) once.
"""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path

from holdfast.stores.redis.words import bulk

_FOLDER = Path(__file__).parent
_RULES = ("record", "shown", "queue", "rules")


class Script:
    """One script: some shared parts, then its own."""

    def __init__(self, name: str, *parts: str) -> None:
        files = [_FOLDER / f"{part}.lua" for part in ("start", *parts, name)]
        self.name = name
        self.source = "\n".join(file.read_text(encoding="utf-8") for file in files).encode()
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest().encode()
        # How a request starts that names the script, and one that brings it along.
        self.by_hash = bulk(b"EVALSHA") + bulk(self.sha)
        self.in_full = bulk(b"EVAL") + bulk(self.source)


CLAIM = Script(
    "claim", "quick_claim", "shown", "quick_turn", "quick_join", "record", "queue", "rules"
)
RENEW = Script("renew", "quick_renew", *_RULES)
FREE = Script("free", "quick_free", *_RULES)
OFFER = Script("offer", *_RULES)
TAKE = Script("take", *_RULES)
EVICT = Script("evict", *_RULES)
SWAP = Script("swap", "record")
SCAN = Script("scan", "record")
ENTER = Script("enter", "record")

ALL = (CLAIM, RENEW, FREE, OFFER, TAKE, EVICT, SWAP, SCAN, ENTER)
