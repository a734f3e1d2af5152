"""What is sent to Redis: names, arguments, and which keys they are about. Pure: no I/O here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha1
from pathlib import Path
from typing import Any

from redis.crc import key_slot

from holdfast.errors import UsageError

SCRIPT = Path(__file__).with_name("admit.lua").read_text(encoding="utf-8")
SHA = sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()
PREFIX = "holdfast:fence:"
MOST_WORDS = 7000  # Lua passes on a little less than 8000 at once

Command = tuple[Any, ...]


def gate_name(key: str) -> str:
    """Returns the name of a key's gate, in the slot of what has the key as its hash tag.

    For the key `orders` that is `holdfast:fence:{orders}`, in one slot with `{orders}:total`. What
    comes before the braces keeps the gates of `orders` and `{orders}` apart.
    """
    start = key.find("{")
    end = key.find("}", start + 1) if start >= 0 else -1
    if end > start + 1:
        return f"{PREFIX}:{key}"  # it has a hash tag of its own
    if key.startswith("}"):  # in braces it would be none
        return f"{PREFIX}}}{{:}}{key}"
    return f"{PREFIX}{{{key}}}"


def words_of(arguments: Sequence[Any]) -> Command:
    """Returns a command as the server gets it. redis-py has two words as one: `XGROUP CREATE`."""
    words = (*str(arguments[0]).split(), *arguments[1:])
    if len(words) > MOST_WORDS:
        raise UsageError(
            f"{words[0]} has {len(words)} arguments, and a script can pass on {MOST_WORDS}: split "
            f"it into several commands."
        )
    return words


def arguments_of(fence: int, commands: Sequence[Command]) -> list[Any]:
    """Returns the arguments of the script."""
    packed: list[Any] = [fence]
    for command in commands:
        packed += (len(command), *command)
    return packed


# --- a cluster --------------------------------------------------------------------------------


def known_keys(command: Command, table: Mapping[str, Any]) -> list[Any] | None:
    """Returns the keys of a command by the server's table of commands; None: ask the server."""
    entry = table.get(str(command[0]).lower())
    if entry is None or entry.get("subcommands") or "movablekeys" in entry["flags"]:
        return None
    first, last, step = (entry[name] for name in ("first_key_pos", "last_key_pos", "step_count"))
    if first == 0:
        return []
    end = last + 1 if last >= 0 else len(command) + last + 1
    return list(command[first:end:step])


def check_one_slot(gate: str, keys: Sequence[bytes]) -> None:
    """Raise unless all keys are where the gate is: a script cannot reach further in a cluster."""
    for key in keys:
        if key_slot(key) != key_slot(gate.encode()):
            raise UsageError(
                f"{key.decode(errors='replace')!r} and the gate {gate!r} are in different slots of "
                f"the cluster, and nothing was written. Put the lock's key in braces into the "
                f"names, as in '{{orders}}:total' for the lock 'orders', or name a gate that is in "
                f"their slot: gate=…"
            )
