"""All connections to one site, for asyncio: the mirror of `wire.Wire`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from holdfast.errors import HoldfastError, Unavailable
from holdfast.stores.redis import errors
from holdfast.stores.redis.connect import Address, Site
from holdfast.stores.redis.pipeline import Pipeline, Shared
from holdfast.stores.redis.routing import (
    Errand,
    Question,
    SlotMap,
    error_in,
    master_address,
    settled,
    slot_of,
)
from holdfast.stores.redis.talk import Call
from holdfast.stores.redis.words import CLUSTER_SLOTS, ROLE, master_of


class AsyncWire:
    """One shared pipeline per server."""

    def __init__(self, site: Site, replicas: int) -> None:
        self._site = site
        self._replicas = replicas
        self._slots = SlotMap(site.addresses)
        self._learning = asyncio.Lock()
        self._nodes: dict[Address, Shared] = {}
        self._main = Shared(self._find)
        self.ready = self._main.ready  # the connection for all calls, if there is just one
        self._closed = False

    # --- asking -----------------------------------------------------------------------------

    async def call(self, call: Call) -> Any:
        """Run a script; the answer is its reply."""
        shared = await self._shared_for(call.name)
        replies = await shared.exchange(call.request, call.replies, call.looks)
        return await self.settled(call, replies, shared.where)

    async def settled(self, call: Call, replies: list[Any], where: str) -> Any:
        """The reply, though it take more than one try."""
        reply = settled(call, replies, self._replicas, where)
        return await self._insist(call, reply, where) if isinstance(reply, ResponseError) else reply

    async def ask(self, question: Question) -> list[Any]:
        """Send plain commands to the server that has this key."""
        shared = await self._shared_for(question.name)
        replies = await shared.exchange(question.request, question.replies, looks=True)
        if (error := error_in(replies)) is not None:
            errand = Errand(question, self._site, shared.where)
            while error is not None:
                replies = await self._exchange_next(errand, error, question.name)
                error = error_in(replies)
        return question.answers(replies)

    async def connect(self) -> Pipeline:
        """A connection of one's own, to any server that takes subscriptions."""
        if self._site.kind != "cluster":
            return await self._find()
        await self._learn_slots()
        return await self._first_of(self._slots.candidates())

    async def close(self) -> None:
        """Hang up."""
        self._closed = True
        for shared in (self._main, *self._nodes.values()):
            await shared.close()

    # --- second tries -----------------------------------------------------------------------

    async def _insist(self, call: Call, reply: Any, where: str) -> Any:
        errand = Errand(call, self._site, where)
        while isinstance(reply, ResponseError):
            replies = await self._exchange_next(errand, reply, call.name)
            reply = settled(call, replies, self._replicas, errand.where)
        return reply

    async def _exchange_next(self, errand: Errand, error: ResponseError, name: bytes) -> list[Any]:
        errand.learn(error)
        shared = await self._shared_next(errand, name)
        replies = await shared.exchange(*errand.request())
        errand.where = shared.where
        return replies

    async def _shared_next(self, errand: Errand, name: bytes) -> Shared:
        if errand.address is not None:
            if errand.moved:
                self._slots.moved(slot_of(name), errand.address)
            return self._node(errand.address)
        shared = await self._shared_for(name)
        if errand.find_again:
            shared.drop()
            self._slots.stale = True
            shared = await self._shared_for(name)
        return shared

    # --- finding servers --------------------------------------------------------------------

    async def _shared_for(self, name: bytes) -> Shared:
        if self._site.kind != "cluster":
            return self._main
        if self._slots.stale:
            await self._learn_slots()
        return self._node(self._slots.master(slot_of(name)))

    def _node(self, address: Address) -> Shared:
        shared = self._nodes.get(address)
        if shared is None:
            shared = self._nodes[address] = Shared(lambda: self._connect_node(address))
            shared.closed = self._closed
        return shared

    async def _connect_node(self, address: Address) -> Pipeline:
        try:
            return await Pipeline.connect(self._site.settings, address)
        except Unavailable:
            self._slots.stale = True
            raise

    async def _find(self) -> Pipeline:
        """A new connection to the one server, which Sentinel names if there is one."""
        site = self._site
        if site.kind == "single":
            return await Pipeline.connect(site.settings, site.addresses[0])
        pipeline = await Pipeline.connect(site.settings, await self._master())
        role = await pipeline.look(ROLE)
        if not isinstance(role, ResponseError) and role[0] != b"master":
            pipeline.close()
            raise Unavailable(
                f"Redis at {pipeline.where} is not yet the master that Sentinel names."
            )
        return pipeline

    async def _master(self) -> Address:
        """The master that the first Sentinel with an answer names."""
        site = self._site
        trouble: HoldfastError | None = None
        for address in site.addresses:
            try:
                sentinel = await Pipeline.connect(site.sentinel_settings, address)
                reply = await sentinel.look(master_of(site.service))
                sentinel.close()
                return master_address(reply, site.service, sentinel.where)
            except HoldfastError as exc:
                trouble = exc
        assert trouble is not None
        raise trouble

    async def _first_of(self, addresses: Sequence[Address]) -> Pipeline:
        """A connection to the first of them that can be reached."""
        trouble: HoldfastError | None = None
        for address in addresses:
            try:
                return await Pipeline.connect(self._site.settings, address)
            except HoldfastError as exc:
                trouble = exc
        assert trouble is not None
        raise trouble

    async def _learn_slots(self) -> None:
        async with self._learning:
            if not self._slots.stale:
                return
            pipeline = await self._first_of(self._slots.candidates())
            try:
                reply = await pipeline.look(CLUSTER_SLOTS)
            finally:
                pipeline.close()
            host, _, port = pipeline.where.rpartition(":")
            if isinstance(reply, ResponseError):
                raise errors.refused(reply, pipeline.where) from reply
            self._slots.learn(reply, (host, int(port)))
