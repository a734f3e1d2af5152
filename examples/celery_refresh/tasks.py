"""The story: an every-five-minutes refresh and a midnight one evaluate the same filters.

refresh_partial   every five minutes. If somebody is at it already, it is skipped; if the
                  midnight refresh comes to wait for it, it stops early.
refresh_full      at midnight. It waits for its turn instead of killing anybody.
evaluate, store   a refresh in two tasks: the lease goes from the first to the second.
"""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery
from celery.schedules import crontab

from examples.celery_refresh import cache
from holdfast.integrations.celery import current_lease, exclusive

REDIS_URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
AUDIENCE = "audience:{institution}"
FILTERS = range(1, 13)

app = Celery("refresh", broker=REDIS_URL, backend=REDIS_URL)
app.conf.update(
    # Any store that all workers reach; this one is a file, for workers on one machine.
    holdfast_url=os.environ.get("HOLDFAST_URL", "sqlite:locks.db"),
    task_acks_late=True,
    worker_redirect_stdouts=False,  # what the tasks say is for the terminal, not for the log
    broker_connection_retry_on_startup=True,
    beat_schedule={
        "partial": {
            "task": "examples.celery_refresh.tasks.refresh_partial",
            "schedule": crontab(minute="*/5"),
            "args": ["acme"],
        },
        "full": {
            "task": "examples.celery_refresh.tasks.refresh_full",
            "schedule": crontab(hour="0", minute="0"),
            "args": ["acme"],
        },
    },
)


def say(text: str) -> None:
    """To the worker's output."""
    print(f"      {text}", flush=True)


def evaluate_filter(filter_id: int) -> str:
    """The slow part."""
    time.sleep(0.2)
    return f"people of filter {filter_id}"


def refresh_one(filter_id: int) -> None:
    """Evaluate, and write if we still may."""
    people = evaluate_filter(filter_id)
    cache.write(filter_id, people, current_lease())


@app.task
@exclusive(key=AUDIENCE, busy="skip", ttl=2)
def refresh_partial(institution: str) -> str:
    """Refresh what changed, until somebody more important waits."""
    lease = current_lease()
    say(f"partial: begins, fence {lease.fence}")
    for done, filter_id in enumerate(FILTERS):
        if lease.wanted:
            say(f"partial: stops after {done} filters for {lease.wanted[0].owner}")
            return f"stopped early after {done} filters"
        refresh_one(filter_id)
    return "done"


@app.task
@exclusive(key=AUDIENCE, busy="wait", fair=True, timeout=600, ttl=2)
def refresh_full(institution: str) -> str:
    """Refresh everything."""
    say(f"full:    begins, fence {current_lease().fence}")
    for filter_id in FILTERS:
        refresh_one(filter_id)
    return "done"


@app.task
@exclusive(key=AUDIENCE, ttl=10, hand_over=30)
def evaluate(institution: str, filter_id: int) -> dict[str, Any]:
    """Half of a refresh. What it holds goes on to the next task of the chain."""
    say(f"chain:   evaluates, fence {current_lease().fence}")
    return {"filter_id": filter_id, "people": evaluate_filter(filter_id)}


@app.task
@exclusive(key=AUDIENCE, ttl=10)
def store(result: dict[str, Any], institution: str) -> str:
    """The other half. Nobody could get in between."""
    lease = current_lease()
    say(f"chain:   writes, fence {lease.fence}")
    cache.write(result["filter_id"], result["people"], lease)
    return "written"
