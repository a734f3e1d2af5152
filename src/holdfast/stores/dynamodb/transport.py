"""Sends requests to DynamoDB through one low-level client of boto3's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from botocore import exceptions as boto

from holdfast.core.contract import Interval
from holdfast.core.records import NEVER, Micros
from holdfast.runtime.run import run
from holdfast.stores.detached import DetachedCalls
from holdfast.stores.dynamodb.connect import Adopted
from holdfast.stores.dynamodb.errors import (
    CONDITION_FAILED,
    code_of,
    is_answer,
    refuse_half,
    trouble,
    was_retried,
)
from holdfast.stores.dynamodb.header_clock import HeaderClock
from holdfast.stores.dynamodb.protocol import Calls, Doing, NotMet, Reply, Request
from holdfast.stores.url import redact

R = TypeVar("R")

# Connections of before a fork: closing one in the child could disturb the parent's.
_abandoned: list[Any] = []


class Transport:
    """Requests about one table. `where` names it in messages."""

    def __init__(self, adopted: Adopted) -> None:
        self.table = adopted.options.table
        self.clock = HeaderClock(adopted.options.clock_margin)
        self.client: Any = adopted.client
        received = "response-received.dynamodb"
        self.client.meta.events.register(received, refuse_half, refuse_half.__name__)
        self._calls = DetachedCalls("holdfast-dynamodb")
        self._owned = adopted.owned
        self._tries_again = not adopted.owned and _tries_again(adopted.client)
        meta = adopted.client.meta
        self.where = (
            f"DynamoDB table {self.table} in {meta.region_name} ({redact(meta.endpoint_url)})"
        )

    def run(self, calls: Calls[R], by: Micros = NEVER) -> R:
        """Send what the protocol asks for, and return what it returns."""
        return run(calls, {}, {Request: lambda request: self._send(request, by)})

    def call(self, operation: str, doing: Doing, **arguments: Any) -> Mapping[str, Any]:
        """Send one request about this table, and return the reply."""
        reply = self._send(Request(operation, doing, {"TableName": self.table, **arguments}))
        assert isinstance(reply, Reply), "a condition goes through `run`"
        return reply.body

    def close(self) -> None:
        """Close the client, if it is ours."""
        self._calls.close()
        if self._owned:
            self.client.close()

    def abandon(self) -> None:
        """In a forked child: the connections are the parent's."""
        _abandoned.append(_connections(self.client) if self._owned else self.client)
        self.client = None  # the rest of it is megabytes

    def _send(self, request: Request, by: Micros = NEVER) -> Reply | NotMet:
        call = partial(getattr(self.client, request.operation), **request.arguments)
        tries = 2 if request.doing == "reading" else 1
        while True:
            tries -= 1
            try:
                # boto3 has no time-out for one request, and hides what a signal handler raises.
                reply = self._calls.run(call, by, writing=request.doing != "reading")
                return Reply(reply, self._now(reply))
            except (boto.BotoCoreError, boto.ClientError) as exc:
                if isinstance(exc, boto.ClientError) and code_of(exc) == CONDITION_FAILED:
                    found = exc.response.get("Item")
                    return NotMet(found, self._now(exc.response), was_retried(exc))
                # A connection may have been idle for too long without anybody noticing.
                if not tries or not isinstance(exc, boto.ConnectionClosedError):
                    raise self._trouble(exc, request.doing) from exc

    def _now(self, reply: Mapping[str, Any]) -> Interval | None:
        return self.clock.read(reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}))

    def _trouble(self, exc: Exception, doing: Doing) -> Exception:
        sent_twice = was_retried(exc) if is_answer(exc) else self._tries_again
        return trouble(exc, doing, self.where, sent_twice=sent_twice)


def _connections(client: Any) -> Any:
    """Returns what has the connections of a client; the client, if that cannot be found."""
    return getattr(getattr(client, "_endpoint", None), "http_session", client)


def _tries_again(client: Any) -> bool:
    """Whether a client of somebody else's may send a request more than once."""
    retries = client.meta.config.retries or {}
    return bool(retries.get("total_max_attempts", 0) != 1 and retries.get("max_attempts") != 0)
