"""Events as log lines that an operator can use, with the details in `extra`."""

from __future__ import annotations

import logging

from holdfast.core import events
from holdfast.core.patience import blocking, names
from holdfast.core.records import SECOND, Micros
from holdfast.stores.url import redact

logger = logging.getLogger("holdfast")


def log_event(event: events.Event) -> None:
    """Write one event to the log."""
    level, message = _describe(event)
    if level and logger.isEnabledFor(level):
        logger.log(level, "%s", message, extra=_extra(event))


def duration(span: Micros) -> str:
    """A span of time for people."""
    seconds = span / SECOND
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _describe(event: events.Event) -> tuple[int, str]:
    match event:
        case events.Acquired(key, owner, fence, _, waited, how):
            after = f" after {duration(waited)}" if waited >= SECOND else ""
            return logging.INFO, f"{how} lock {key}{after} (owner: {owner}, fence: {fence})"
        case events.Released(key, owner, fence, held_for, how):
            held = duration(held_for)
            return logging.INFO, f"{how} lock {key} after {held} (owner: {owner}, fence: {fence})"
        case events.Waiting(key, _, holders, ahead, _, frees_in, news, more):
            until = "" if frees_in is None else f" for another {duration(frees_in)}"
            who = blocking(holders, len(ahead) + more)
            return (logging.WARNING if news else 0), f"Lock {key} is {who}{until}"
        case events.InDanger(key, owner, fence, remaining):
            return logging.WARNING, (
                f"Lock {key} is in danger: it could not be renewed and runs out in "
                f"{duration(remaining)} (owner: {owner}, fence: {fence})"
            )
        case events.OutOfDanger(key, owner, fence):
            return logging.INFO, f"Lock {key} is out of danger (owner: {owner}, fence: {fence})"
        case events.Lost(key, owner, fence, why):
            return logging.ERROR, f"Lost lock {key}: {why} (owner: {owner}, fence: {fence})"
        case events.Wanted(key, _, _, waiters):
            return logging.INFO, f"Lock {key} is wanted by {names(waiters)}"
        case events.Evicted(key, ()):
            return logging.INFO, f"Evicted nobody from lock {key}"
        case events.Evicted(key, holders):
            return logging.WARNING, f"Evicted {names(holders)} from lock {key}"
        case events.StoreTrouble(key, error, doing, True):
            return logging.WARNING, f"Trouble to {doing} lock {key}, trying again: {redact(error)}"
        case events.StoreTrouble(key, error, doing):
            return logging.WARNING, (
                f"Could not {doing} lock {key}, its ttl will free it: {redact(error)}"
            )


def _extra(event: events.Event) -> dict[str, object]:
    fields: dict[str, object] = {"holdfast_event": type(event).__name__, "lock": event.key}
    for name in ("owner", "fence", "mode", "why"):
        if hasattr(event, name):
            fields[f"lock_{name}"] = getattr(event, name)
    return fields
