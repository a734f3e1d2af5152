"""The lease of one task in the message of the next one.

A lease is handed over with a ticket, and the ticket travels in a header of the message, so
that the next task's arguments stay what they are. Between the two tasks nobody runs, and
the lock stays taken: for the lease's ttl, or for `within` seconds. If the next task never
starts, that time frees it.

    hand_over_to(signature)          the running task sends the next one itself
    @exclusive(..., hand_over=True)  Celery sends it: the next in the chain, or the one callback
    @exclusive(..., take_from="x")   the ticket comes in the argument x instead of a header

A message may be delivered twice and a task may be retried, but a ticket can be used once.
So a task that comes with a ticket that is gone gets the lock like any other (`late`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import signature

from holdfast.api.guard import current_lease
from holdfast.api.leases import Lease
from holdfast.api.options import Seconds
from holdfast.core.tickets import unseal
from holdfast.errors import BadTicket, UsageError

HEADER = "holdfast_ticket"


def hand_over_to(target: Any, *, within: Seconds | None = None) -> Any:
    """Give the running task's lease to another task: the signature to send, with the ticket.

        hand_over_to(write_cache.s(filter_id, rows)).apply_async()

    From here on the lease is no longer ours. The other task must be `@exclusive` on the
    same key; it takes the lease over with a new fence instead of waiting for it. Of a chain
    it is the first task, of a chord the body. `within` is how long the lock waits for it
    (by default the ttl): give it the time that a queue or a chord's header may take.
    """
    return _carrying(target, current_lease(), within)


def hand_on(task: Any, lease: Lease, within: Seconds | None) -> bool:
    """Give the lease to what Celery will start after this task. False: there is nothing."""
    following = _following(task)
    if following is None:
        return False
    place, index = following
    place[index] = _carrying(signature(place[index], app=task.app), lease, within)
    return True


def ticket_for(task: Any, arguments: Mapping[str, Any], take_from: str | None) -> str | None:
    """The ticket that came with this task, if any."""
    if take_from is not None:
        ticket = arguments.get(take_from)
        if ticket is not None and not isinstance(ticket, str):
            raise BadTicket(f"{take_from!r} is a ticket or None, not a {type(ticket).__name__}.")
        return ticket or None
    headers = (task.request.headers if task is not None else None) or {}
    ticket = headers.get(HEADER)
    return str(ticket) if ticket else None


def check_ticket(ticket: str, key: str) -> None:
    """A ticket for another lock would leave this one unguarded."""
    handed = unseal("hand-over", ticket).key
    if handed != key:
        raise BadTicket(f"The lease that was handed over is on {handed!r}, and not on {key!r}.")


def _following(task: Any) -> tuple[list[Any], int] | None:
    """Where the next signature is. Celery sends the last of `chain`; callbacks all at once."""
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


def _carrying(target: Any, lease: Lease, within: Seconds | None) -> Any:
    """A copy of the signature that carries the lease. The target is found out first: once
    the lease is given up it should go somewhere."""
    sent = target.clone()
    first = _first(sent)
    headers = dict(first.options.get("headers") or {})
    first.set(headers={**headers, HEADER: lease.hand_over(ttl=within)})
    return sent


def _first(sent: Any) -> Any:
    """The one task in a signature that is to take the lease."""
    if sent.task == "celery.chord":
        return _first(sent.body)
    if sent.task == "celery.group":
        raise UsageError("A lease can be handed to one task, and not to a group of them.")
    return _first(sent.tasks[0]) if sent.task == "celery.chain" else sent
