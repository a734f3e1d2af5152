"""How a known-bad variant is made: a small patch of the core, undone afterwards."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from holdfast.core import acquiring, releasing, renewing, retrying, steps
from holdfast.core.effects import Steps
from holdfast.core.holds import Attempt
from holdfast.core.observations import Observations
from holdfast.core.steps import Answer

Patches = AbstractContextManager[Any]


@dataclass(frozen=True)
class Mutant:
    """One way to get it wrong."""

    name: str
    within: int
    patches: Callable[[], Patches]
    store: str | None = None  # the only kind of store on which it can be seen
    seen_at: int = 0  # a seed by which it was caught when this was written

    def seeds(self) -> list[int]:
        """The seeds to try: all of them, beginning with the one that has caught it before."""
        return [(self.seen_at + place) % self.within for place in range(self.within)]


MUTANTS: list[Mutant] = []


def mutant(
    within: int, store: str | None = None, seen_at: int = 0
) -> Callable[[Callable[[], Iterator[Patches]]], None]:
    """Register a mutant: a function that yields its patches."""

    def register(make: Callable[[], Iterator[Patches]]) -> None:
        @contextmanager
        def patched() -> Iterator[None]:
            with ExitStack() as stack:
                for each in make():
                    stack.enter_context(each)
                yield

        name = make.__name__.lstrip("_").replace("_", "-")
        MUTANTS.append(Mutant(name, within, patched, store, seen_at))

    return register


def wrap_apply(
    wrapper: Callable[[Steps[Answer], Observations, Attempt, Any], Steps[Answer]],
) -> Iterator[Patches]:
    """Put something around `apply_steps`, wherever it is called."""
    original = steps.apply_steps

    def apply_steps(
        observations: Observations, attempt: Attempt, command: Any, now: int
    ) -> Steps[Answer]:
        return wrapper(
            original(observations, attempt, command, now), observations, attempt, command
        )

    for module in (steps, acquiring, releasing, renewing, retrying):
        yield patch.object(module, "apply_steps", apply_steps)


def relay(
    inner: Steps[Answer],
    answered: Callable[[Any, Any], Generator[Any, Any, Any]] | None = None,
    failed: Callable[[Any, Exception], Exception] | None = None,
) -> Steps[Answer]:
    """Pass effects on, with a hand in the answers and in the errors."""
    answer: Any = None
    trouble: Exception | None = None
    while True:
        try:
            effect = inner.send(answer) if trouble is None else inner.throw(trouble)
        except StopIteration as done:
            result: Answer = done.value
            return result
        answer = trouble = None
        try:
            answer = yield effect
        except Exception as exc:
            if failed is None:
                trouble = exc
                continue
            other = failed(effect, exc)
            if other is not exc:
                inner.close()
                raise other from None
            trouble = exc
            continue
        if answered is not None:
            answer = yield from answered(effect, answer)
