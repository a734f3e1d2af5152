"""The arguments of `acquire_all`: keys, or keys with a mode of their own."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from holdfast.errors import BadKey, BadOption


class Want(Struct, frozen=True):
    """One of the locks for `acquire_all`: `Want("db://a", mode="shared")`.

    key    the name of the lock
    mode   `exclusive` (the default), or `shared` with other shared leases
    limit  instead of a mode: how many holders there may be at once
    """

    key: str
    mode: str | None = None
    limit: int | None = None


def check_wants(wants: Iterable[str | Want]) -> list[Want]:
    """Returns the wants, checked: at least one, and each key only once."""
    if isinstance(wants, str):
        raise BadOption("acquire_all takes a list of keys; for one key there is acquire().")
    checked = [want if isinstance(want, Want) else Want(want) for want in wants]
    if not checked:
        raise BadOption("acquire_all needs at least one key.")
    seen: set[str] = set()
    for want in checked:
        if not isinstance(want.key, str):
            raise BadKey(f"A key is a string, not {type(want.key).__name__}.")
        if want.key in seen:
            raise BadOption(f"acquire_all was given {want.key!r} twice.")
        seen.add(want.key)
    return checked
