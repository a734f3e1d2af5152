"""redis-py's `Lock`, as a drop-in: the same calls, the same bytes in Redis, fewer surprises.

    from holdfast.dropin.redis_lock import Lock

    with client.lock("report", timeout=30, lock_class=Lock):
        ...

The key holds the token and PTTL is the ttl, so redis-py's locks and these exclude each
other. What is better, and what is not (there is no fence: for that use `holdfast.connect`):

    always          a reply that was lost on the way costs no lock, hides none and is not
                    taken for "no longer owned"; `extend` never adds its time twice
    keep=True       the lock is renewed in the background while it is held
    push=True       a waiter is woken by the release, not by its next look
    release(token=) another thread or process may release, by the token

    protocol                    what is asked of Redis, and what the answers mean: no I/O
    state                       what a lock knows without asking
    transport_async, transport  a script on a connection, where a lost reply can be seen
    pubsub_async, pubsub        waiting for a release
    lock_async, lock            the lock; `holdfast.dropin.redis_lock.asyncio.Lock` is the first
"""

from holdfast.extras import needed

with needed("holdfast.dropin.redis_lock", "redis"):
    from holdfast.dropin.redis_lock.lock import Lock

__all__ = ["Lock"]
