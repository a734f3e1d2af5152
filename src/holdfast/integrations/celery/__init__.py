"""Celery tasks that never run twice at once.

    from holdfast.integrations.celery import current_lease, exclusive

    app.conf.holdfast_url = "redis://cache:6379/3"

    @app.task
    @exclusive(key="audience:{filter_id}", busy="skip", ttl=60)
    def refresh(filter_id):
        rows = evaluate(filter_id)
        current_lease().check()
        write(filter_id, rows, fence=current_lease().fence)

A worker acquires the lease before the task's code runs, keeps it alive meanwhile, and releases it
when the task ends: well, by an exception, at a soft time limit or by `revoke(terminate=True)`.
If the process cannot run code at its end (kill -9, a hard time limit, a power cut), the ttl frees
the lock.

What each module does:

    exclusive    the decorator: acquire, run the task, hand over or release
    busy_policy  what a task does when somebody else holds the lock
    handover     passes the lease of one task to the next one, in its message
    once_per_key later calls get the first one's result
    beat         `celery beat` on every machine, of which one is active
    owner_note   the owner and the note of a lease that a task holds
    children     frees the lock of a task whose worker process died
    clients      one Holdfast client per process and URL, made after the fork
    greenlets    refuses gevent and eventlet, and says why
"""

from holdfast.api.guard import current_lease
from holdfast.extras import needed

with needed("holdfast.integrations.celery", "celery"):
    from holdfast.integrations.celery.busy_policy import was_skipped
    from holdfast.integrations.celery.exclusive import exclusive
    from holdfast.integrations.celery.greenlets import GreenletsUnsupported
    from holdfast.integrations.celery.handover import hand_over_to
    from holdfast.integrations.celery.once_per_key import once_per_key

__all__ = [
    "GreenletsUnsupported",
    "current_lease",
    "exclusive",
    "hand_over_to",
    "once_per_key",
    "was_skipped",
]
