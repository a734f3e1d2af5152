"""`ResourceLocker`: the methods of the original, and the new ones."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, Table, delete, insert, select, update
from sqlalchemy import exc as sa

from holdfast.dropin.resource_lock.granting import (
    both_exist,
    check_free,
    count,
    expiry_of,
    insert_expiry,
    insert_lock,
    locks,
    same_lock,
    sweep,
)
from holdfast.dropin.resource_lock.models import Client, LockException, Resource, ResourceLock
from holdfast.dropin.resource_lock.tables import (
    CLIENT,
    EXPIRY,
    LOCK,
    RESOURCE,
    clock,
    create_tables,
    exclude_others,
    open_engine,
    reporting_locked_tables,
    was_rolled_back,
)

R = TypeVar("R")

LOCK_TYPES = ("read", "write")
MOST_TRIES = 10
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0


class ResourceLocker:
    """Locks and unlocks resources in the database at a URL, which must exist."""

    def __init__(self, url: str, timeout: int = 3600) -> None:
        """`timeout` is the age in seconds at which a connection is replaced by a new one."""
        self.url = url
        self._engine = open_engine(url, timeout)
        self._keeps_expiry = False
        create_tables(self._engine)

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    # --- locks ------------------------------------------------------------------------------

    def lock(
        self,
        client_name: str,
        resource_uri: str,
        lock_type: str,
        *,
        ttl: float | None = None,
        wait: float = 0,
    ) -> ResourceLock:
        """Lock a resource to `read` or to `write` it, or raise `LockException`.

        ttl   after so many seconds the lock runs out, unless `renew` is called
        wait  for how many seconds to try again while the resource is locked
        """
        if lock_type not in LOCK_TYPES:
            raise ValueError(f"Unsupported lock_type: {lock_type}")
        if ttl is not None:
            if not ttl > 0:
                raise ValueError(f"ttl is a number of seconds above 0, not {ttl!r}")
            self._keep_expiry()
        ends_at, pause = time.monotonic() + wait, FIRST_PAUSE_S
        while True:
            try:
                return self._try_lock(client_name, resource_uri, lock_type, ttl)
            except LockException:
                rest = ends_at - time.monotonic()
                if rest <= 0:
                    raise
            time.sleep(min(rest, random.uniform(pause / 2, pause)))
            pause = min(1.5 * pause, LONGEST_PAUSE_S)

    def renew(self, lock: ResourceLock, ttl: float) -> None:
        """Let a lock that was made with a `ttl` run for `ttl` seconds from now."""
        self._keep_expiry()

        def work(connection: Connection) -> None:
            exclude_others(connection, lock.resource.resource_id)
            now = clock(connection)
            alive = expiry_of(lock) & (EXPIRY.c.expires_us >= now)
            later = update(EXPIRY).where(alive).values(expires_us=now + round(ttl * 1e6))
            held = count(connection, LOCK, same_lock(lock))
            if not held or connection.execute(later).rowcount == 0:
                raise ValueError(f"No lock with a ttl is held for ID {lock.resource_lock_id}")

        self._transact(work)

    def unlock(self, lock: ResourceLock | int) -> None:
        """Release a lock, given as an object or by its ID. Raises `ValueError` if there is none."""
        lock_id = lock if isinstance(lock, int) else lock.resource_lock_id
        which = LOCK.c.resource_lock_id == lock_id
        if not isinstance(lock, int):
            which &= same_lock(lock)

        def work(connection: Connection) -> None:
            if connection.execute(delete(LOCK).where(which)).rowcount == 0:
                raise ValueError(f"No lock found for ID {lock_id}")
            if self._keeps_expiry:
                connection.execute(delete(EXPIRY).where(EXPIRY.c.resource_lock_id == lock_id))

        self._transact(work)

    def get_locks(
        self,
        *,
        lock_type: str | None = None,
        resource_uri: str | None = None,
        client_name: str | None = None,
    ) -> list[ResourceLock]:
        """Returns the current locks, all or those that match."""
        query = locks()
        for column, value in (
            (LOCK.c.lock_type, lock_type),
            (RESOURCE.c.uri, resource_uri),
            (CLIENT.c.name, client_name),
        ):
            if value is not None:
                query = query.where(column == value)
        return [self._lock_from(row) for row in self._rows(query)]

    def get_lock(self, lock_id: int) -> ResourceLock | None:
        """Returns the lock with this ID."""
        rows = self._rows(locks().where(LOCK.c.resource_lock_id == lock_id))
        return self._lock_from(rows[0]) if rows else None

    # --- clients and resources --------------------------------------------------------------

    def get_client(self, name: str, session: object = None) -> Client:
        """Returns the client of this name, which is created if need be. `session` is ignored."""
        return Client(self._get_or_create(CLIENT, "name", name), name)

    def get_client_by_id(self, client_id: int) -> Client | None:
        """Returns the client with this ID."""
        rows = self._rows(select(CLIENT).where(CLIENT.c.client_id == client_id))
        return _client(rows[0]) if rows else None

    def get_clients(self) -> list[Client]:
        """Returns all clients."""
        return [_client(row) for row in self._rows(select(CLIENT).order_by(CLIENT.c.client_id))]

    def delete_client(self, client: Client | str | int) -> None:
        """Delete a client, given as an object, by name or by ID."""
        which = client.client_id if isinstance(client, Client) else client
        self._delete(CLIENT, "client_id", "name", which)

    def get_resource(self, uri: str, session: object = None) -> Resource:
        """Returns the resource with this URI, which is created if need be. `session` is ignored."""
        return Resource(self._get_or_create(RESOURCE, "uri", uri), uri)

    def get_resource_by_id(self, resource_id: int) -> Resource | None:
        """Returns the resource with this ID."""
        rows = self._rows(select(RESOURCE).where(RESOURCE.c.resource_id == resource_id))
        return _resource(rows[0]) if rows else None

    def get_resources(self) -> list[Resource]:
        """Returns all resources."""
        rows = self._rows(select(RESOURCE).order_by(RESOURCE.c.resource_id))
        return [_resource(row) for row in rows]

    def delete_resource(self, resource: Resource | str | int) -> None:
        """Delete a resource, given as an object, by URI or by ID."""
        which = resource.resource_id if isinstance(resource, Resource) else resource
        self._delete(RESOURCE, "resource_id", "uri", which)

    # --- how it is done ---------------------------------------------------------------------

    def _try_lock(
        self, client_name: str, resource_uri: str, lock_type: str, ttl: float | None
    ) -> ResourceLock:
        for _ in range(MOST_TRIES):
            client, resource = self.get_client(client_name), self.get_resource(resource_uri)

            def work(
                connection: Connection, client: Client = client, resource: Resource = resource
            ) -> ResourceLock | None:
                exclude_others(connection, resource.resource_id)
                if not both_exist(connection, client, resource):
                    return None  # deleted since
                if self._keeps_expiry or self._expiry_is_there(connection):
                    sweep(connection, resource)
                check_free(connection, resource, lock_type)
                lock_id, created = insert_lock(connection, client, resource, lock_type)
                if ttl is not None:
                    insert_expiry(connection, lock_id, created, ttl)
                return ResourceLock(lock_id, lock_type, created, client, resource, self)

            lock = self._transact(work)
            if lock is not None:
                return lock
        raise LockException(f"{resource_uri} was deleted by others again and again: try again")

    def _keep_expiry(self) -> None:
        if not self._keeps_expiry:
            create_tables(self._engine, [EXPIRY])
            self._keeps_expiry = True

    def _expiry_is_there(self, connection: Connection) -> bool:
        self._keeps_expiry = connection.dialect.has_table(connection, EXPIRY.name)
        return self._keeps_expiry

    def _get_or_create(self, table: Table, column: str, value: str) -> int:
        (key,) = table.primary_key.columns
        query = select(key).where(table.c[column] == value)
        while True:
            rows = self._rows(query)
            if rows:
                return int(rows[0][0])
            try:
                with reporting_locked_tables(), self._engine.begin() as connection:
                    done = connection.execute(insert(table).values({column: value}))
                    return int(done.inserted_primary_key[0])  # type: ignore[index]
            except sa.IntegrityError:
                if not self._rows(query):
                    raise  # it failed for another reason than a faster insert
            except sa.OperationalError as exc:
                if not was_rolled_back(exc):
                    raise

    def _delete(self, table: Table, key: str, name: str, which: str | int) -> None:
        match = table.c[key if isinstance(which, int) else name] == which

        def work(connection: Connection) -> None:
            found = connection.execute(select(table.c[key]).where(match)).first()
            if found is None:
                raise ValueError(f"No {table.name} found for {which!r}")
            held = count(connection, LOCK, LOCK.c[key] == found[0])
            if held:
                raise LockException(f"The {table.name} {which!r} has {held} lock(s)")
            connection.execute(delete(table).where(match))

        self._transact(work)

    def _transact(self, work: Callable[[Connection], R]) -> R:
        """Run this in one transaction, again if the database rolled it back for another one."""
        tries = 0
        while True:
            tries += 1
            try:
                with reporting_locked_tables(), self._engine.begin() as connection:
                    return work(connection)
            except sa.DBAPIError as exc:
                if not was_rolled_back(exc) or tries == MOST_TRIES:
                    raise
            time.sleep(random.uniform(0, 0.02 * tries))

    def _rows(self, query: Select[Any]) -> list[Row[Any]]:
        with reporting_locked_tables(), self._engine.connect() as connection:
            return list(connection.execute(query))

    def _lock_from(self, row: Row[Any]) -> ResourceLock:
        client = Client(row.client_id or 0, row.name or "")
        resource = Resource(row.resource_id or 0, row.uri or "")
        return ResourceLock(
            row.resource_lock_id, row.lock_type, row.created, client, resource, self
        )


def _client(row: Row[Any]) -> Client:
    return Client(row.client_id, row.name)


def _resource(row: Row[Any]) -> Resource:
    return Resource(row.resource_id, row.uri)
