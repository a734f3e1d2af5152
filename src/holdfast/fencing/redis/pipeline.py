# Made from pipeline_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""A pipeline whose commands run in one script behind the gate."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from redis import Redis
from redis.cluster import RedisCluster
from redis.exceptions import NoScriptError, ResponseError

from holdfast.errors import ForeignStore, UsageError
from holdfast.fencing.gate import Fenced, check_admitted, fence_of
from holdfast.fencing.redis.commands import Commands
from holdfast.fencing.redis.requests import (
    SCRIPT,
    SHA,
    Command,
    arguments_of,
    check_one_slot,
    gate_name,
    known_keys,
    words_of,
)

_tables: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()


class Pipeline(Commands):
    """Collects commands, and has the server run them all if the fence is admitted.

    It has the methods of redis-py's client. They return the pipeline; the replies come from
    `execute()`, or are in `replies` after a `with` block.
    """

    def __init__(self, client: Any, lease: Fenced, key: str | None, gate: str | None) -> None:
        if not isinstance(client, (Redis, RedisCluster)):
            raise UsageError(
                f"Give a client of redis-py ({Redis.__module__}), not {type(client).__name__} of "
                f"{type(client).__module__}."
            )
        self._client: Any = client
        self._lease, self._key = lease, key
        self.gate = gate_name(fence_of(lease, key).key) if gate is None else gate
        self._commands: list[Command] = []
        self.replies: list[Any] = []

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Add a command. redis-py's methods come here."""
        self._commands.append(words_of(args))
        return self

    def __len__(self) -> int:
        return len(self._commands)

    def execute(self) -> list[Any]:
        """Run the commands. Returns their replies as Redis gives them.

        Raises `StaleFence` if a later holder was admitted before; then nothing is written. As in
        any pipeline of Redis, a command that fails does not undo the others; its error is raised.
        """
        fence = fence_of(self._lease, self._key)
        commands, self._commands = self._commands, []
        if isinstance(self._client, RedisCluster):
            check_one_slot(self.gate, self._keys(commands))
        remembered, replies = self._run(arguments_of(fence.fence, commands))
        if remembered is not None:
            check_admitted(fence, int(remembered))
        self.replies = replies
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise reply
        return replies

    def _run(self, arguments: list[Any]) -> tuple[Any, list[Any]]:
        try:
            try:
                answer = self._client.evalsha(SHA, 1, self.gate, *arguments)
            except NoScriptError:
                answer = self._client.eval(SCRIPT, 1, self.gate, *arguments)
        except ResponseError as exc:
            if "not a fence" in str(exc) or "WRONGTYPE" in str(exc):
                raise ForeignStore(
                    f"The key {self.gate!r} is not a gate of Holdfast's, and was left alone: name "
                    f"another one by gate=…"
                ) from exc
            raise
        return answer[0], answer[1] if len(answer) > 1 else []

    def _keys(self, commands: list[Command]) -> list[bytes]:
        """Returns the keys of all commands, which a cluster must have in one place."""
        if self._client not in _tables:
            _tables[self._client] = self._client.command()
        found: list[Any] = []
        for command in commands:
            keys = known_keys(command, _tables[self._client])
            found += self._asked_keys(command) if keys is None else keys
        encode = self._client.get_encoder().encode
        return [encode(key) for key in found]

    def _asked_keys(self, command: Command) -> list[Any]:
        try:
            keys: list[Any] = self._client.command_getkeys(*command)
        except ResponseError:  # the command has none
            return []
        return keys

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None:
            self.execute()


def pipeline(
    client: Any, lease: Fenced, *, key: str | None = None, gate: str | None = None
) -> Pipeline:
    """Returns a pipeline whose commands run only if no later holder was admitted before.

        with fencing.redis.pipeline(client, lease) as p:
            p.set("total", 12)
            p.hset("report", "state", "done")

    They run as one step on the server, at the end of the block. `client` is redis-py's, for a
    server, from Sentinel or for a cluster; there, all keys must be in the gate's slot.
    """
    return Pipeline(client, lease, key, gate)


def admit(client: Any, lease: Fenced, *, key: str | None = None, gate: str | None = None) -> None:
    """Admit this lease's fence, and write nothing else: smaller fences are refused from now on.

    Raises `StaleFence` if a later holder was admitted before.
    """
    Pipeline(client, lease, key, gate).execute()
