"""The same as `wire`, awaited."""

from __future__ import annotations

from typing import Any

from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.exceptions import NoScriptError

from holdfast.dropin.redis_lock.calls import Reply, Script
from holdfast.dropin.redis_lock.wire import ELSEWHERE, UNSURE, Doubt, Unreachable, policy_of


async def call(client: Any, script: Script, name: Any, args: tuple[Any, ...]) -> Reply:
    """Run a script on one key. See `wire.call`."""
    doubt = Doubt()

    async def attempt() -> Any:
        try:
            return await _run(client, script, (name, *args), doubt)
        except UNSURE:
            doubt.failed = True
            raise

    try:
        try:
            value = await policy_of(client, Retry).call_with_retry(attempt, _nothing)
        except UNSURE:
            if not doubt.cast:
                raise
            value = await attempt()
    except Unreachable as unreachable:
        raise unreachable.error from None
    return Reply(value, doubt.cast)


async def _nothing(error: Exception) -> None:
    """Between two tries there is nothing to do: a broken connection was closed already."""


async def _run(client: Any, script: Script, key_and_args: tuple[Any, ...], doubt: Doubt) -> Any:
    await client.initialize()
    if isinstance(client, RedisCluster):
        return await _run_on_cluster(client, script, key_and_args, doubt)
    if client.connection is not None:
        return await client.execute_command("EVAL", script.text, 1, *key_and_args)
    return await _run_on_server(client, script, key_and_args, doubt)


async def _run_on_cluster(
    cluster: Any, script: Script, key_and_args: tuple[Any, ...], doubt: Doubt
) -> Any:
    command = ("EVAL", script.text, 1, *key_and_args)
    if not doubt.failed:
        try:
            return await cluster.get_node_from_key(key_and_args[0]).execute_command(*command)
        except UNSURE:
            doubt.cast = True
            raise
        except ELSEWHERE:
            pass  # redis-py follows it there
    return await cluster.execute_command(*command)


async def _run_on_server(
    client: Any, script: Script, key_and_args: tuple[Any, ...], doubt: Doubt
) -> Any:
    pool = client.connection_pool
    try:
        connection = await pool.get_connection()
    except UNSURE as error:
        raise Unreachable(error) from None
    try:
        try:
            return await _exchange(connection, ("EVALSHA", script.digest, 1, *key_and_args), doubt)
        except NoScriptError:
            return await _exchange(connection, ("EVAL", script.text, 1, *key_and_args), doubt)
    finally:
        await pool.release(connection)


async def _exchange(connection: Any, command: tuple[Any, ...], doubt: Doubt) -> Any:
    try:
        await connection.send_command(*command)
        return await connection.read_response()
    except UNSURE:
        doubt.cast = True
        await connection.disconnect(nowait=True)
        raise
