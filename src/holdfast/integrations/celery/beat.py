"""`celery beat` on every machine, of which one is active.

    celery -A app beat -S holdfast.integrations.celery.beat.LeadingScheduler

Every beat keeps its schedule up to date, and only the one that leads sends tasks. When it stops,
the next one goes on at once; when it dies, after the ttl. An entry that falls due in between is not
sent.
"""

from __future__ import annotations

from typing import Any

from celery.beat import PersistentScheduler

from holdfast.api.leading import Candidate
from holdfast.api.leases import Lease
from holdfast.integrations.celery.clients import locks_for
from holdfast.observe.log import logger

KEY_SETTING = "holdfast_beat_key"
TTL_SETTING = "holdfast_beat_ttl"
DEFAULT_KEY = "celery:beat"
DEFAULT_TTL_S = 15.0


class LeadingScheduler(PersistentScheduler):  # type: ignore[misc]  # Celery has no types
    """Celery's scheduler, which sends tasks only while this process leads."""

    def __init__(self, app: Any, *args: Any, **kwargs: Any) -> None:
        self._candidate: Candidate | None = None
        super().__init__(app, *args, **kwargs)
        if not kwargs.get("lazy"):
            self._campaign()

    def _campaign(self) -> None:
        key = self.app.conf.get(KEY_SETTING) or DEFAULT_KEY
        ttl = self.app.conf.get(TTL_SETTING) or DEFAULT_TTL_S
        self._candidate = locks_for(self.app, None, None).lead(key, _stay, ttl=ttl)
        self._candidate.__enter__()

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send what is due, if this process leads. The schedule goes on in any case, so that a new
        leader does not send what the one before has sent."""
        if self._candidate is not None and self._candidate.leading:
            super().apply_entry(entry, producer)
        else:
            logger.debug("Another beat leads: %s is not sent from here", entry.name)

    def close(self) -> None:
        if self._candidate is not None:
            self._candidate.__exit__(None, None, None)
        super().close()


def _stay(lease: Lease) -> None:
    """The work of a leader is done by the scheduler, which looks whether it leads."""
    lease.lost.wait()
