"""Grants a lock inside one transaction, after `tables.enter` has kept others out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, Table, delete, func, insert, select

from holdfast.dropin.resource_lock.models import Client, LockException, Resource, ResourceLock
from holdfast.dropin.resource_lock.tables import CLIENT, EXPIRY, LOCK, RESOURCE, clock


def locks() -> Select[Any]:
    """Returns a query for all locks with their clients and resources."""
    return (
        select(LOCK, CLIENT.c.name, RESOURCE.c.uri)
        .outerjoin(CLIENT, CLIENT.c.client_id == LOCK.c.client_id)
        .outerjoin(RESOURCE, RESOURCE.c.resource_id == LOCK.c.resource_id)
        .order_by(LOCK.c.resource_lock_id)
    )


def same_lock(lock: ResourceLock) -> Any:
    """Returns a condition for exactly this lock. SQLite reuses ids, so the id is not enough."""
    return (LOCK.c.resource_lock_id == lock.resource_lock_id) & (LOCK.c.created == lock.created)


def expiry_of(lock: ResourceLock) -> Any:
    """Returns a condition for the expiry of exactly this lock."""
    same = EXPIRY.c.resource_lock_id == lock.resource_lock_id
    return same & (EXPIRY.c.created == lock.created)


def count(connection: Connection, table: Table, match: Any) -> int:
    """Returns how many rows match."""
    return int(connection.scalar(select(func.count()).select_from(table).where(match)) or 0)


def both_exist(connection: Connection, client: Client, resource: Resource) -> bool:
    """Whether neither the client nor the resource was deleted since."""
    return bool(
        count(connection, CLIENT, CLIENT.c.client_id == client.client_id)
        and count(connection, RESOURCE, RESOURCE.c.resource_id == resource.resource_id)
    )


def check_free(connection: Connection, resource: Resource, lock_type: str) -> None:
    """Raise `LockException` if the rule does not allow the lock."""
    on_it = LOCK.c.resource_id == resource.resource_id
    if lock_type == "read":
        writing = count(connection, LOCK, on_it & (LOCK.c.lock_type == "write"))
        if writing:
            raise LockException(f"{resource.uri} is locked for writing: it cannot be read now")
    else:
        held = count(connection, LOCK, on_it)
        if held:
            raise LockException(f"{resource.uri} has {held} lock(s): it cannot be written now")


def insert_lock(
    connection: Connection, client: Client, resource: Resource, lock_type: str
) -> tuple[int, datetime]:
    """Write the row. Returns its ID and its time of creation as the database stored it: MySQL drops
    fractions of a second."""
    values = {"client_id": client.client_id, "resource_id": resource.resource_id}
    created = datetime.now(UTC).replace(tzinfo=None)
    done = connection.execute(insert(LOCK).values(lock_type=lock_type, created=created, **values))
    (lock_id,) = done.inserted_primary_key  # type: ignore[misc]
    stored = connection.scalar(select(LOCK.c.created).where(LOCK.c.resource_lock_id == lock_id))
    assert stored is not None
    return lock_id, stored


def insert_expiry(connection: Connection, lock_id: int, created: datetime, ttl: float) -> None:
    """Give the lock an expiry. An older lock with the same ID may have left one: replace it."""
    connection.execute(delete(EXPIRY).where(EXPIRY.c.resource_lock_id == lock_id))
    expires = clock(connection) + round(ttl * 1e6)
    row = {"resource_lock_id": lock_id, "created": created, "expires_us": expires}
    connection.execute(insert(EXPIRY).values(**row))


def sweep(connection: Connection, resource: Resource) -> None:
    """Delete the locks of a resource that have run out."""
    same = EXPIRY.c.resource_lock_id == LOCK.c.resource_lock_id
    run_out = (
        select(LOCK.c.resource_lock_id)
        .join(EXPIRY, same & (EXPIRY.c.created == LOCK.c.created))
        .where(LOCK.c.resource_id == resource.resource_id)
        .where(EXPIRY.c.expires_us < clock(connection))
    )
    ids = list(connection.scalars(run_out))
    if ids:
        connection.execute(delete(LOCK).where(LOCK.c.resource_lock_id.in_(ids)))
        connection.execute(delete(EXPIRY).where(EXPIRY.c.resource_lock_id.in_(ids)))
