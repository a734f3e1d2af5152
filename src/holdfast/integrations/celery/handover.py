"""Passes the lease of one task to the next one, in the next one's message.

The ticket of the hand-over travels in a header of the message, so that the next task's arguments
stay what they are. Between the two tasks nobody else gets the lock: for the lease's ttl, or for
`within` seconds. If the next task has not started by then, the lock is free.

    hand_over_to(signature)          the running task sends the next one itself
    @exclusive(..., hand_over=True)  Celery sends it: the next in the chain, or the one callback
    @exclusive(..., take_from="x")   the ticket comes in the argument x instead of a header

A message may be delivered twice and a task may be retried, but a ticket works once. So a task
whose ticket was used before acquires the lock like any other task, or fails (`late`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import signature

from holdfast.api.guard import current_lease
from holdfast.api.leases import Lease
from holdfast.api.options import Seconds
from holdfast.core.discreet import hidden
from holdfast.core.tickets import unseal
from holdfast.errors import BadTicket, UsageError

HEADER = "holdfast_ticket"


def hand_over_to(target: Any, *, within: Seconds | None = None) -> Any:
    """Give the running task's lease to another task. Returns the signature to send.

        hand_over_to(write_cache.s(filter_id, rows)).apply_async()

    After this call the lease is no longer ours. The other task must be `@exclusive` on the
    same key; it takes over the lease with a new fence instead of waiting for the lock. In a chain
    the first task gets the lease, in a chord the body. `within` is how many seconds the lock stays
    reserved for it (by default the ttl): as long as a queue or a chord's header may take.
    """
    return _with_ticket(target, current_lease(), within)


def hand_to_next(task: Any, lease: Lease, within: Seconds | None) -> bool:
    """Give the lease to the task that Celery starts after this one. Returns False if there is
    none."""
    following = _next_signature(task)
    if following is None:
        return False
    signatures, index = following
    target = signature(signatures[index], app=task.app)
    signatures[index] = _with_ticket(target, lease, within)
    return True


def ticket_for(task: Any, arguments: Mapping[str, Any], take_from: str | None) -> str | None:
    """Returns the ticket that came with this task, if any."""
    if take_from is not None:
        ticket = arguments.get(take_from)
        if ticket is not None and not isinstance(ticket, str):
            raise BadTicket(f"{take_from!r} is a ticket or None, not a {type(ticket).__name__}.")
        return hidden(ticket) or None
    headers = (task.request.headers if task is not None else None) or {}
    ticket = headers.get(HEADER)
    return hidden(str(ticket)) if ticket else None


def check_ticket(ticket: str, key: str) -> None:
    """Raise if the ticket is for another lock, which would leave this one unguarded."""
    handed = unseal("hand-over", ticket).key
    if handed != key:
        raise BadTicket(f"The lease that was handed over is on {handed!r}, and not on {key!r}.")


def _next_signature(task: Any) -> tuple[list[Any], int] | None:
    """Returns the list and the index of the next signature: Celery sends the last one of `chain`,
    or all callbacks at once."""
    request = task.request if task is not None else None
    if request is None:
        return None
    if request.chain:
        return request.chain, -1
    if not request.callbacks:
        return None
    if len(request.callbacks) > 1:
        raise UsageError("A lease can be handed to one task, and this one has several callbacks.")
    return request.callbacks, 0


def _with_ticket(target: Any, lease: Lease, within: Seconds | None) -> Any:
    """Returns a copy of the signature with the ticket in it. The receiver is determined first: a
    lease that was handed over with nobody to receive it would block the lock."""
    sent = target.clone()
    first = _first(sent)
    headers = dict(first.options.get("headers") or {})
    first.set(headers={**headers, HEADER: lease.hand_over(ttl=within)})
    return sent


def _first(sent: Any) -> Any:
    """Returns the one task of a signature that takes the lease."""
    if sent.task == "celery.chord":
        return _first(sent.body)
    if sent.task == "celery.group":
        raise UsageError("A lease can be handed to one task, and not to a group of them.")
    return _first(sent.tasks[0]) if sent.task == "celery.chain" else sent
