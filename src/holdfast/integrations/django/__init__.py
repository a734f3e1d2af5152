"""Locks for Django projects, on the database or cache that the project has.

    # settings.py
    INSTALLED_APPS = [..., "holdfast.integrations.django"]
    HOLDFAST = {"database": "default"}  # or {"cache": "default"}, or {"url": "redis://…"}

    from holdfast.integrations.django import guard, locks

    @guard("report:{pk}", busy="skip")
    def rebuild(request, pk): ...

What each module does:

    settings      from settings.HOLDFAST to a store URL and the options of `connect`
    project_urls  the URL of a database or a cache of the project
    clients       `locks` and `aio_locks`: one client per process, made at first use
    guarding      `guard` for views, tasks and functions
    commands      `NoOverlap` for management commands
    checks        what `manage.py check` says
    apps          the AppConfig
    management    `manage.py holdfast`: the command line of Holdfast on the project's store
"""

from holdfast.api.guard import current_lease
from holdfast.extras import needed

with needed("holdfast.integrations.django", "django"):
    from holdfast.integrations.django.clients import aio_locks, locks
    from holdfast.integrations.django.commands import NoOverlap
    from holdfast.integrations.django.guarding import guard
    from holdfast.integrations.django.settings import BadSettings

__all__ = ["BadSettings", "NoOverlap", "aio_locks", "current_lease", "guard", "locks"]
