"""How often a store is polled on behalf of a waiting call.

Each pause is a part of the time that the call has waited already: short waits end soon, and long
waits cost little. The pause hardly grows within the first second, so that a call that has waited
for longer looks nearly as often as one that has just come. (If it grew fast, those who have waited
longest would look most rarely, and would hardly ever be the first to see a free lock.) A store that
takes long to answer has much to do, and is polled more rarely.
"""

from __future__ import annotations

import random

FIRST_S = 0.02
LONGEST_S = 1.0
PART = 20


def pause_s(waited_s: float, took_s: float = 0.0, longest_s: float = LONGEST_S) -> float:
    """Returns how long to pause before the next poll for a call that has waited for so long, if the
    last answer took so long."""
    pause = max(waited_s / PART, FIRST_S, took_s) * random.uniform(0.5, 1.5)
    return min(pause, longest_s)
