"""Two Celery tasks that write the same cache, and never at the same time."""
