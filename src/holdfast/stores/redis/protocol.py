"""Which server to ask, and what to do about a reply that says: not here, or not like this.

Shared by both faces, without I/O. A server refuses a request that it did not carry out, so
sending it again, elsewhere or in another form, never does anything twice.
"""

from __future__ import annotations

from binascii import crc_hqx
from typing import Any

from redis.exceptions import ResponseError

from holdfast.errors import Unavailable
from holdfast.stores.redis.codec import UNREADABLE, Call, Corrupt
from holdfast.stores.redis.connect import Address, Topology
from holdfast.stores.redis.errors import refused, too_few_replicas
from holdfast.stores.redis.resp import ASKING

SLOTS = 16384
MOST_TRIES = 6


def slot_of(name: bytes) -> int:
    """The slot of a key with a hash tag."""
    tag = name[name.index(b"{") + 1 : name.index(b"}")]
    return crc_hqx(tag, 0) % SLOTS


def master_address(reply: Any, service: str, where: str) -> Address:
    """The answer of a Sentinel."""
    if not reply:
        raise Unavailable(f"The Sentinel at {where} knows no master called {service!r}.")
    return reply[0].decode(), int(reply[1])


class SlotMap:
    """Which master has which slot, as far as we know."""

    def __init__(self, seeds: tuple[Address, ...]) -> None:
        self._seeds = seeds
        self._masters: dict[int, Address] = {}
        self.stale = True

    def master(self, slot: int) -> Address:
        """Who has this slot."""
        address = self._masters.get(slot)
        if address is None:
            self.stale = True
            raise Unavailable(f"No master of the Redis Cluster serves the slot {slot}.")
        return address

    def masters(self) -> list[Address]:
        """All masters."""
        return list(dict.fromkeys(self._masters.values()))

    def candidates(self) -> list[Address]:
        """Whom to ask for the map, the ones known last first."""
        return list(dict.fromkeys((*self.masters(), *self._seeds)))

    def learn(self, reply: list[Any], where: str) -> None:
        """The answer to CLUSTER SLOTS."""
        masters: dict[int, Address] = {}
        for first, last, master, *_ in reply:
            host = master[0].decode() if master[0] else where.rpartition(":")[0]
            masters.update(dict.fromkeys(range(first, last + 1), (host, int(master[1]))))
        self._masters = masters
        self.stale = False

    def moved(self, slot: int, address: Address) -> None:
        """A server said that it lost this slot to another; others may have gone too."""
        self._masters[slot] = address
        self.stale = True


class Redirect:
    """A call whose reply was an error: where and how to send it next."""

    def __init__(self, call: Call, topology: Topology, where: str) -> None:
        self._call = call
        self._topology = topology
        self.where = where
        self._tries = 0
        self._found_again = False
        self._in_full = False
        self.asking = False
        self.address: Address | None = None  # whom the server has named
        self.moved = False  # for good, not for this one request
        self.find_again = False  # the master may be another by now

    def learn(self, error: Exception) -> None:
        """Decide about the next try, or raise what the error means."""
        self.asking = self.moved = self.find_again = False
        self._tries += 1
        code, _, rest = str(error).partition(" ")
        if UNREADABLE in str(error):
            raise Corrupt
        if self._tries >= MOST_TRIES:
            raise refused(error, self.where) from error
        if code == "NOSCRIPT":
            self._in_full = True
        elif code in ("MOVED", "ASK") and self._topology.kind == "cluster":
            host, _, port = rest.split()[1].rpartition(":")
            self.address = (host or self.where.rpartition(":")[0], int(port))
            self.moved, self.asking = code == "MOVED", code == "ASK"
        elif code == "READONLY" and not self._found_again:
            # A master that was demoted, or a name that stands for another server now.
            self._found_again = self.find_again = True
        elif code == "READONLY" and self._topology.kind != "single":
            raise Unavailable(
                f"Redis at {self.where} is no longer the master, and the new one is not known yet."
            ) from error
        else:
            raise refused(error, self.where) from error

    def request(self) -> tuple[bytes, int, bool]:
        """What to send, how many replies come back (the last ones count), and whether it only
        looks."""
        call = self._call
        request = call.request_in_full() if self._in_full else call.request
        if self.asking:
            return ASKING + request, call.replies + 1, call.looks
        return request, call.replies, call.looks


def settled(call: Call, replies: list[Any], wanted: int, where: str) -> Any:
    """The reply of a call, if as many replicas have it as were asked for."""
    reply = replies[-call.replies]
    if isinstance(reply, ResponseError):
        return reply
    if call.tail and (isinstance(reply, int) or reply[:7] == b"granted"):
        acknowledged = replies[-1]
        if isinstance(acknowledged, ResponseError):
            raise refused(acknowledged, where) from acknowledged
        if acknowledged < wanted:
            raise too_few_replicas(acknowledged, wanted, where)
    return reply
