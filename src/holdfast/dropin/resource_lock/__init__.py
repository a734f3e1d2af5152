"""The `ResourceLocker` of Ensembl's production pipelines, with its classes and tables.

Existing code only changes its import:

    from holdfast.dropin.resource_lock import LockException, ResourceLocker

    locker = ResourceLocker("mysql://user:password@host:3306/resource_lock")
    lock = locker.lock("my_client_name", "uri://my_resource", "read")
    locker.unlock(lock)

A lock is a row: any number of `read` locks on a resource without a `write` lock, and a
`write` lock only when there is no other lock at all. Programs that still use the original
on the same database exclude this one, and it excludes them.

New here, and off unless asked for: `ttl=` (the lock runs out by itself), `wait=` (try for
so long), and `with locker.lock(...)`. Locks of the original never expire, and neither do
these without a `ttl`. There is no fencing number: for that, use `holdfast.connect()`.
"""

from holdfast.extras import needed

with needed("holdfast.dropin.resource_lock", "sql"):
    from holdfast.dropin.resource_lock.locker import ResourceLocker
    from holdfast.dropin.resource_lock.models import Client, LockException, Resource, ResourceLock

__all__ = ["Client", "LockException", "Resource", "ResourceLock", "ResourceLocker"]
