# Made from transport_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""Runs a script on a connection of the client's pool, where a lost reply can be seen.

redis-py repeats a command by itself when the connection breaks, and does not say so. A lock must
know: its command must not be carried out twice unseen. So a call takes a connection from the pool
and talks to it directly; it is repeated as often as the client's own `Retry` says, but here, where
that is known.

A client with a single connection, and a cluster whose slots are on the move, go through redis-py
after all: its repetitions stay unseen, and the answers are as good as its own.
"""

from __future__ import annotations

from typing import Any

from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import AskError, ClusterDownError, MovedError, NoScriptError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from holdfast.dropin.redis_lock.protocol import Reply, Script

# After these a request may have been carried out or not.
UNSURE = (RedisConnectionError, RedisTimeoutError)
# A cluster node that does not have the slot says one of these: surely not carried out.
ELSEWHERE = (MovedError, AskError, TryAgainError, ClusterDownError)


class Unreachable(Exception):
    """There was no connection to send anything on. Connecting has retries of its own."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Doubt:
    """Whether an attempt of this call left and got no reply (`cast`), or failed at all."""

    def __init__(self) -> None:
        self.cast = False
        self.failed = False


def call(client: Any, script: Script, name: Any, args: tuple[Any, ...]) -> Reply:
    """Run a script on one key, as often as the client would, and at least once more if the outcome
    is not known. Returns its reply, and whether an earlier attempt is in doubt."""
    doubt = Doubt()

    def attempt() -> Any:
        try:
            return _run(client, script, (name, *args), doubt)
        except UNSURE:
            doubt.failed = True
            raise

    try:
        try:
            value = _retry_of(client).call_with_retry(attempt, _between_attempts)
        except UNSURE:
            if not doubt.cast:
                raise
            value = attempt()
    except Unreachable as unreachable:
        raise unreachable.error from None
    return Reply(value, doubt.cast)


def _between_attempts(error: Exception) -> None:
    """There is nothing to do: a broken connection was closed already."""


def _retry_of(client: Any) -> Any:
    """Returns how often this client repeats."""
    policy = client.get_retry() if hasattr(client, "get_retry") else getattr(client, "retry", None)
    return Retry(NoBackoff(), 0) if policy is None else policy


def _run(client: Any, script: Script, key_and_args: tuple[Any, ...], doubt: Doubt) -> Any:
    if isinstance(client, RedisCluster):
        return _run_on_cluster(client, script, key_and_args, doubt)
    if client.connection is not None:
        return client.execute_command("EVAL", script.text, 1, *key_and_args)
    return _run_on_node(client, script, key_and_args, doubt)


def _run_on_cluster(
    cluster: Any, script: Script, key_and_args: tuple[Any, ...], doubt: Doubt
) -> Any:
    command = ("EVAL", script.text, 1, *key_and_args)
    if not doubt.failed:
        node = cluster.get_node_from_key(key_and_args[0])
        try:
            client = cluster.get_redis_connection(node)
            return _run_on_node(client, script, key_and_args, doubt)
        except (*ELSEWHERE, Unreachable):
            pass  # redis-py follows it there
    return cluster.execute_command(*command)


def _run_on_node(client: Any, script: Script, key_and_args: tuple[Any, ...], doubt: Doubt) -> Any:
    pool = client.connection_pool
    try:
        connection = pool.get_connection()
    except UNSURE as error:
        raise Unreachable(error) from None
    try:
        try:
            return _exchange(connection, ("EVALSHA", script.digest, 1, *key_and_args), doubt)
        except NoScriptError:
            return _exchange(connection, ("EVAL", script.text, 1, *key_and_args), doubt)
    finally:
        pool.release(connection)


def _exchange(connection: Any, command: tuple[Any, ...], doubt: Doubt) -> Any:
    try:
        connection.send_command(*command)
        return connection.read_response()
    except UNSURE:
        doubt.cast = True
        connection.disconnect()
        raise
