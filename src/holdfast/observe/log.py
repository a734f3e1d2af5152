"""The sink that writes events to the log, for operators. The details are in `extra`."""

from __future__ import annotations

import logging

from holdfast.core import events
from holdfast.core.records import SECOND, Micros
from holdfast.core.waiting import blocking, names
from holdfast.stores.url import redact

logger = logging.getLogger("holdfast")


def log_event(event: events.Event) -> None:
    """Write one event to the log. The line is only made if its level is enabled."""
    level = _level(event)
    if level and logger.isEnabledFor(level):
        logger.log(level, "%s", printable(_describe(event)), extra=_extra(event))


def printable(text: str) -> str:
    """Returns text of others with control characters escaped: they could move the cursor or forge a
    line of the log."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def duration(span: Micros) -> str:
    """Returns a span of time in words."""
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


_LEVELS = {
    events.InDanger: logging.WARNING,
    events.Lost: logging.ERROR,
    events.StoreTrouble: logging.WARNING,
}

# What was tried, where the verb alone does not fit before "lock".
_TRIED = {"use a ticket": "use the ticket for lock", "clean up": "clean up behind lock"}


def _level(event: events.Event) -> int:
    match event:
        case events.Started() | events.GaveUp():  # the call itself reports these
            return 0
        case events.Waiting(news=news):
            return logging.WARNING if news else 0
        case events.Evicted(holders=holders):
            return logging.WARNING if holders else logging.INFO
    return _LEVELS.get(type(event), logging.INFO)


def _describe(event: events.Event) -> str:
    match event:
        case events.Started(key, owner):
            return f"Asking for lock {key} (owner: {owner})"
        case events.GaveUp(key, owner, why):
            return f"Gave up on lock {key}: {why} (owner: {owner})"
        case events.Acquired(key, owner, fence, _, waited, how):
            after = f" after {duration(waited)}" if waited >= SECOND else ""
            return f"{how} lock {key}{after} (owner: {owner}, fence: {fence})"
        case events.Released(key, owner, fence, held_for, how):
            held = duration(held_for)
            return f"{how} lock {key} after {held} (owner: {owner}, fence: {fence})"
        case events.Waiting(key, _, holders, ahead, _, frees_in, _, more, _):
            until = "" if frees_in is None else f" for another {duration(frees_in)}"
            return f"Lock {key} is {blocking(holders, len(ahead) + more)}{until}"
        case events.InDanger(key, owner, fence, remaining):
            return (
                f"Lock {key} is in danger: it could not be renewed and runs out in "
                f"{duration(remaining)} (owner: {owner}, fence: {fence})"
            )
        case events.OutOfDanger(key, owner, fence):
            return f"Lock {key} is out of danger (owner: {owner}, fence: {fence})"
        case events.Lost(key, owner, fence, why):
            return f"Lost lock {key}: {why} (owner: {owner}, fence: {fence})"
        case events.Wanted(key, _, _, waiters):
            return f"Lock {key} is wanted by {names(waiters)}"
        case events.Evicted(key, ()):
            return f"Evicted nobody from lock {key}"
        case events.Evicted(key, holders):
            return f"Evicted {names(holders)} from lock {key}"
        case events.StoreTrouble(key, error, doing, True):
            return f"Could not {_tried(doing)} {key}, trying again: {redact(error)}"
        case events.StoreTrouble(key, error, doing):
            return f"Could not {_tried(doing)} {key}, its ttl will free it: {redact(error)}"


def _tried(doing: str) -> str:
    return _TRIED.get(doing, f"{doing} lock")


def _extra(event: events.Event) -> dict[str, object]:
    fields: dict[str, object] = {"holdfast_event": type(event).__name__, "lock": event.key}
    for name in ("owner", "fence", "mode", "why"):
        if hasattr(event, name):
            fields[f"lock_{name}"] = getattr(event, name)
    return fields
