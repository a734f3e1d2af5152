"""`@locks.guard("pipeline:{dataset_id}")`: the part that both faces share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncContextDecorator, ContextDecorator
from contextvars import ContextVar
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Literal, get_args

from holdfast.errors import BadOption, UsageError

OnBusy = Literal["skip", "wait", "raise"]
OrElse = Literal["wait", "raise"]  # the function runs, or something is raised: never None

_current: ContextVar[Any] = ContextVar("holdfast_lease", default=None)


def current_lease() -> Any:
    """Returns the lease of the innermost guarded function that is running.

    Raises `UsageError` outside of a guarded function."""
    lease = _current.get()
    if lease is None:
        raise UsageError("There is no lease here: current_lease() works inside a guarded function.")
    return lease


def options_for(
    acquire: Callable[..., Any], key: str, busy: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Returns the options that a guard passes on to `acquire`, a method of `Locks`.

    A misspelt option or a missing key (`@locks.guard` alone) raises here, when the module is
    loaded, and not when the function is first called."""
    import inspect

    if not isinstance(key, str):
        raise BadOption(
            f"guard() takes the template of a key, as in @locks.guard('report'), not {key!r}."
        )
    inspect.signature(acquire).bind(None, key, **options)
    return options if busy == "wait" else {"timeout": 0, **options}


def nothing(*args: Any, **kwargs: Any) -> None:
    """What a call that was skipped returns."""


class Guarded:
    """One guarded function: its key for given arguments, and its lease while it runs."""

    def __init__(self, function: Callable[..., Any], template: str, busy: str) -> None:
        if busy not in get_args(OnBusy):
            raise BadOption(f"busy is 'skip', 'wait' or 'raise', not {busy!r}.")
        self.busy = busy
        import inspect

        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(
                "A generator's body runs after the call has returned, when the lock would be "
                "free again: acquire the lock inside of it instead."
            )
        self.name = getattr(function, "__qualname__", None) or repr(function)
        self._template = template
        self._signature = _signature(function)
        self._options = _options_of(self._signature)  # "" if it takes none
        self._may_be_missing: set[str] = set()  # names in the template that may be among them
        self._check_template(template)

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Returns the key for a call with these arguments."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = {**bound.arguments.get(self._options, {}), **bound.arguments}
        for name in self._may_be_missing - values.keys():
            raise BadOption(
                f"The key {self._template!r} names {name!r}, which this call of {self.name}() does "
                f"not pass by that name."
            )
        return self._template.format(**values)

    def check_ran(self, outcome: object) -> None:
        """Raise if the function has not run yet: it would run without the lock. A decorator or an
        object may have hidden that it is async or a generator."""
        body = outcome
        if isinstance(outcome, (ContextDecorator, AsyncContextDecorator)):
            body = getattr(outcome, "gen", None)  # @contextmanager has made it
        if isinstance(body, (CoroutineType, GeneratorType, AsyncGeneratorType)):
            if not isinstance(body, AsyncGeneratorType):
                body.close()
            raise UsageError(
                f"{self.name}() returned something that has not run yet and would run without "
                "the lock: guard the function itself, below its other decorators (an async one "
                "with holdfast.aio's locks), or acquire the lock inside of it."
            )

    def _check_template(self, template: str) -> None:
        import string

        try:
            parts = list(string.Formatter().parse(template))
        except (ValueError, TypeError) as exc:
            raise BadOption(f"{self._template!r} is not a key template: {exc}") from None
        for _, field, form, _ in parts:
            if field is None:
                continue
            name = field.split(".")[0].split("[")[0]
            if name in self._signature.parameters:
                pass
            elif self._options and name.isidentifier():
                self._may_be_missing.add(name)
            else:
                raise BadOption(
                    f"The key {self._template!r} names {name!r}, which is not an argument of "
                    f"{self.name}()."
                )
            self._check_template(form or "")


def _signature(function: Callable[..., Any]) -> Any:
    """Returns the arguments with which the function is called.

    `inspect` follows `__wrapped__` past a partial function, and would name the arguments that the
    partial has bound already. Django's `method_decorator` makes such a one."""
    import functools
    import inspect

    inner = inspect.unwrap(function, stop=lambda one: isinstance(one, functools.partial))
    if isinstance(inner, functools.partial):
        return inspect.signature(inner, follow_wrapped=False)
    return inspect.signature(function)


def _options_of(signature: Any) -> str:
    """Returns the name of its **options, or nothing."""
    parameters = signature.parameters.values()
    return next((one.name for one in parameters if one.kind is one.VAR_KEYWORD), "")


class Within:
    """Makes a lease the current one for a block."""

    def __init__(self, lease: Any) -> None:
        self._lease = lease

    def __enter__(self) -> None:
        self._before = _current.set(self._lease)

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._before)
