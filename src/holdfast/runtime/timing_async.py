"""Tells sinks how long each request to the store took, if any of them wants to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from holdfast.core.effects import Amend, Apply, ApplyMany, Load, Scan, Swap, SwapMany
from holdfast.core.events import Asked, StoreAnswered

_ASKED: dict[type, Asked] = {
    Load: "load",
    Swap: "swap",
    SwapMany: "swap",
    Amend: "amend",
    Apply: "apply",
    ApplyMany: "apply",
    Scan: "scan",
}

Handler = Callable[[Any], Any]
Emit = Callable[[StoreAnswered], None]


def timed(handlers: Mapping[type, Handler], emit: Emit) -> dict[type, Handler]:
    """Returns handlers that do the same, and emit `StoreAnswered` for each request."""
    return {
        effect: _timed(effect, handler, emit) if effect in _ASKED else handler
        for effect, handler in handlers.items()
    }


def _timed(effect_type: type, handler: Handler, emit: Emit) -> Handler:
    asked = _ASKED[effect_type]
    together = effect_type in (SwapMany, ApplyMany)

    async def ask(effect: Any) -> Any:
        began = perf_counter()
        try:
            answer = await handler(effect)
        except BaseException as trouble:
            took = perf_counter() - began
            emit(StoreAnswered(asked, took, type(trouble).__name__, _many(effect)))
            raise
        took = perf_counter() - began
        emit(StoreAnswered(asked, took, "", _many(effect) if together else 1))
        return answer

    return ask


def _many(effect: Any) -> int:
    kind = type(effect)
    if kind is SwapMany:
        return len(effect.swaps)
    return len(effect.applies) if kind is ApplyMany else 1
