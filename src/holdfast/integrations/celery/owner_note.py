"""The owner and the note of a lease that a task holds, as `holdfast ls` and messages show them."""

from __future__ import annotations

from typing import Any

from celery import current_task

from holdfast.api.options import LONGEST_TEXT, default_owner


def running_task() -> Any:
    """Returns the Celery task that runs here; None if the function was called without one."""
    return current_task._get_current_object() if current_task else None


def owner_of(task: Any) -> str | None:
    """Returns `module.task[task id]`; None means the client's own owner."""
    if task is None:
        return None
    who = f"[{task.request.id or 'called directly by ' + default_owner()}]"
    return f"{task.name[: LONGEST_TEXT - len(who)]}{who}"[:LONGEST_TEXT]


def note_of(task: Any, extra: dict[str, Any]) -> dict[str, Any]:
    """Returns the note: what is known of this run, and what the decorator adds."""
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
