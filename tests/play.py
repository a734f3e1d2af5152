"""Runs steps without a driver: the test answers their effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.core.effects import Effect, Steps
from holdfast.errors import HoldfastError

R = TypeVar("R")


def play(steps: Steps[R], answer: Callable[[Effect], Any]) -> R:
    """Run steps to the end with these answers, or errors."""
    reply, trouble = None, None
    while True:
        try:
            effect = steps.send(reply) if trouble is None else steps.throw(trouble)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        reply = trouble = None
        try:
            reply = answer(effect)
        except HoldfastError as exc:
            trouble = exc
