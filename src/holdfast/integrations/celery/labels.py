"""Who holds a lock, in a task's words: what `holdfast ls` and the messages show."""

from __future__ import annotations

from typing import Any

from celery import current_task

from holdfast.api.options import LONGEST_TEXT, default_owner


def running_task() -> Any:
    """The Celery task that runs here; None for a function that was called by itself."""
    return current_task._get_current_object() if current_task else None


def owner_of(task: Any) -> str | None:
    """`module.task[task id]`; None leaves it to the client."""
    if task is None:
        return None
    who = f"[{task.request.id or 'called directly by ' + default_owner()}]"
    return f"{task.name[: LONGEST_TEXT - len(who)]}{who}"[:LONGEST_TEXT]


def note_of(task: Any, extra: dict[str, Any]) -> dict[str, Any]:
    """What is known of the run, for people and programs who look at the lock."""
    if task is None:
        return extra
    request = task.request
    known = {
        "task": task.name,
        "task_id": request.id,
        "retries": request.retries,
        "worker": request.hostname,
    }
    return {name: value for name, value in known.items() if value is not None} | extra
