"""gevent and eventlet pools are refused, at the start of the worker and at the first use.

Holdfast renews leases in threads of its own. Once the standard library is patched, these
become greenlets that run only while the task lets them: a task that computes for longer
than the ttl would lose its lease in silence, which is the one thing a lock must not do.
`lease.check()` would tell, but a worker that works only for tasks which ask is a trap.
"""

from __future__ import annotations

import sys
from typing import Any

from celery import signals

from holdfast.errors import Unsupported


class GreenletsUnsupported(Unsupported):
    """Holdfast does not work in gevent and eventlet pools, where its renewals would stop
    whenever a task computes: use --pool=prefork, threads or solo."""


def refuse_greenlets() -> None:
    """Raise if threads are not threads here."""
    if _patched_by_gevent() or _patched_by_eventlet():
        raise GreenletsUnsupported


def _patched_by_gevent() -> bool:
    monkey: Any = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def _patched_by_eventlet() -> bool:
    patcher: Any = sys.modules.get("eventlet.patcher")
    return patcher is not None and bool(patcher.is_monkey_patched("thread"))


def _refuse_at_start(**_: Any) -> None:
    try:
        refuse_greenlets()
    except GreenletsUnsupported as refused:
        # Celery logs and forgets what a signal handler raises, unless it ends the program.
        raise SystemExit(f"holdfast: {refused}") from None


signals.worker_init.connect(_refuse_at_start)
