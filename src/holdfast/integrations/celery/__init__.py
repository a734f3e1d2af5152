"""Celery tasks that never run twice at once.

    from holdfast.integrations.celery import current_lease, exclusive

    app.conf.holdfast_url = "redis://cache:6379/3"

    @app.task
    @exclusive(key="audience:{filter_id}", busy="skip", ttl=60)
    def refresh(filter_id):
        rows = evaluate(filter_id)
        current_lease().check()
        write(filter_id, rows, fence=current_lease().fence)

The lease is got before the task's code runs, kept alive while it runs, and released when
it ends: well, by an exception, at a soft time limit or by `revoke(terminate=True)`. What
cannot run code at its end (kill -9, a hard time limit, a power cut) is freed by the ttl.

How it works, and what each module has to do with it:

    exclusive    the decorator: claim, run, pass on or release
    taken        what a task does when the lock is somebody else's
    handing      the lease of one task in the message of the next one
    labels       who holds a lock, in a task's words
    clients      one Holdfast client per process and URL, made after the fork
    greenlets    why gevent and eventlet are refused
"""

from holdfast.api.guard import current_lease
from holdfast.integrations.celery.exclusive import exclusive
from holdfast.integrations.celery.greenlets import GreenletsUnsupported
from holdfast.integrations.celery.handing import hand_over_to
from holdfast.integrations.celery.taken import was_skipped

__all__ = [
    "GreenletsUnsupported",
    "current_lease",
    "exclusive",
    "hand_over_to",
    "was_skipped",
]
