"""The sink that writes events to the log, for operators. The details are in `extra`.

    DEBUG    that a claim has to wait; each try of a store that is away
    INFO     what begins and ends; once per wait, that it has become a long one; in vain, skipped
    WARNING  danger; that the store went away; an eviction
    ERROR    a loss

So a program that has not set up logging prints nothing for ordinary work.
"""

from __future__ import annotations

import logging

from holdfast.core import events
from holdfast.core.records import SECOND, Micros
from holdfast.core.waiting import blocking, names
from holdfast.errors import Busy
from holdfast.stores.url import redact

logger = logging.getLogger("holdfast")


def log_event(event: events.Event) -> None:
    """Write one event to the log. The line is only made if its level is enabled."""
    level = _LEVELS.get(type(event))
    if level is None:
        level = _level(event)
    if level and logger.isEnabledFor(level):
        logger.log(level, "%s", printable(_describe(event)), extra=_extra(event))


def log_in_vain(key: str, why: Busy) -> None:
    """Write to the log that a lock was not to be had, where no exception says so."""
    logger.info("Not acquired: %s", printable(str(why)), extra={"lock": key})


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


def _span(seconds: float) -> str:
    return duration(round(seconds * SECOND))


# 0: not at all. The call itself reports how an attempt begins and ends.
_LEVELS: dict[type, int] = {
    events.Started: 0,
    events.Acquired: logging.INFO,
    events.GaveUp: 0,
    events.Skipped: logging.INFO,
    events.Renewed: 0,
    events.InDanger: logging.WARNING,
    events.OutOfDanger: logging.INFO,
    events.Wanted: logging.INFO,
    events.Released: logging.INFO,
    events.HandedOver: logging.INFO,
    events.Lost: logging.ERROR,
    events.StoreAway: logging.WARNING,
    events.StoreBack: logging.INFO,
    events.StoreAnswered: 0,
    events.SinkTrouble: 0,  # whoever notices it logs it, with its traceback
}

_BEGAN = {"acquired": "Acquired", "joined": "Joined", "taken": "Took over"}
_ENDED = {
    "released": "Released",
    "left": "Left",
    "given back": "Gave back",
    "abandoned": "Abandoned",
}
# What was tried, where the verb alone does not fit before "lock".
_TRIED = {"use a ticket": "use the ticket for lock", "clean up": "clean up behind lock"}

# What is not tried again although the lock may still be held.
_FREED_BY_TTL = ("release", "clean up")


def _level(event: events.Event) -> int:
    match event:
        case events.Waiting(news=news, long=long):
            return logging.INFO if long else logging.DEBUG if news else 0
        case events.StoreTrouble(doing=doing, again=again):  # `StoreAway` tells of the store
            return logging.INFO if doing in _FREED_BY_TTL and not again else logging.DEBUG
        case events.Evicted(holders=holders):
            return logging.WARNING if holders else logging.INFO
    return logging.INFO


def _describe(event: events.Event) -> str:
    match event:
        case events.Started(key, owner):
            return f"Asking for lock {key} (owner: {owner})"
        case events.GaveUp(key, owner, why):
            return f"Gave up on lock {key}: {why} (owner: {owner})"
        case events.Skipped(key, _, function):
            return f"Skipping {function}: lock {key} is taken"
        case events.Acquired(key, owner, fence, _, waited, how):
            after = f" after {_span(waited)}" if waited >= 1 else ""
            return f"{_BEGAN[how]} lock {key}{after} (owner: {owner}, fence: {fence})"
        case events.Renewed(key, owner, fence):
            return f"Renewed lock {key} (owner: {owner}, fence: {fence})"
        case events.Released(key, owner, fence, held_for, how):
            held = _span(held_for)
            return f"{_ENDED[how]} lock {key} after {held} (owner: {owner}, fence: {fence})"
        case events.HandedOver(key, owner, fence, held_for):
            held = _span(held_for)
            return f"Handed over lock {key} after {held} (owner: {owner}, fence: {fence})"
        case events.Waiting(key, _, holders, ahead, _, frees_in, _, more):
            until = "" if frees_in is None else f" (free in {_span(frees_in)} unless renewed)"
            state = f"{blocking(holders, len(ahead) + more)}{until}"
            if event.own:
                state = state.replace("held by ", f"held by this very {event.own}, ", 1)
            if event.long:
                return f"Waiting for lock {key}, for {_span(event.waited)} so far: it is {state}"
            return f"Lock {key} is {state}"
        case events.InDanger(key, owner, fence, remaining):
            return (
                f"Lock {key} is in danger: it could not be renewed and runs out in "
                f"{_span(remaining)} (owner: {owner}, fence: {fence})"
            )
        case events.OutOfDanger(key, owner, fence):
            return f"Lock {key} is out of danger (owner: {owner}, fence: {fence})"
        case events.Lost(key, owner, fence, why):
            return f"Lost lock {key}: {why} (owner: {owner}, fence: {fence})"
        case events.Wanted(key, _, _, waiters):
            return f"Lock {key} is wanted by {names(waiters)}"
        case events.Evicted(key, ()):
            return f"Evicted nobody from lock {key}"
        case events.Evicted(key, holders, operator, reason):
            by = f" (by {operator})" if operator else ""
            return f"Evicted {names(holders)} from lock {key}{by}{reason and f': {reason}'}"
        case events.StoreTrouble(key, error, doing, True):
            return f"Could not {_tried(doing)} {key}, trying again: {redact(error)}"
        case events.StoreTrouble(key, error, doing):
            then = ", its ttl will free it" if doing in _FREED_BY_TTL else ""
            return f"Could not {_tried(doing)} {key}{then}: {redact(error)}"
        case events.StoreAway(error):
            return f"The store is away: {redact(error)}"
        case events.StoreBack(away_for, closed=True):
            return f"The client was closed while the store was away, for {_span(away_for)}"
        case events.StoreBack(away_for):
            return f"The store is back after {_span(away_for)}"
        case events.StoreAnswered(asked, took):
            return f"The store answered a {asked} after {_span(took)}"
        case events.SinkTrouble(sink, fault):
            return f"A sink of Holdfast events failed: {sink} ({fault})"


def _tried(doing: str) -> str:
    return _TRIED.get(doing, f"{doing} lock")


def _extra(event: events.Event) -> dict[str, object]:
    fields: dict[str, object] = {"holdfast_event": type(event).__name__, "lock": event.key}
    for name in ("owner", "fence", "mode", "why"):
        if hasattr(event, name):
            fields[f"lock_{name}"] = getattr(event, name)
    return fields
