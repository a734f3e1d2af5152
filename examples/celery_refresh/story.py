"""What happens around midnight: sends the tasks and tells what became of them."""

from __future__ import annotations

import sys
import time

from celery import chain

from examples.celery_refresh import cache, tasks
from holdfast.integrations.celery import was_skipped


def main() -> None:
    """Tell it."""
    if not any(tasks.app.control.ping(timeout=0.5) for _ in range(60)):
        sys.exit("The worker did not start.")
    say("00:00 The five-minute refresh starts,")
    first = tasks.refresh_partial.delay("acme")
    time.sleep(0.5)
    say("00:00 and another one, because a contact changed: it is not needed twice.")
    second = tasks.refresh_partial.delay("acme").get(timeout=60)
    say(f"      partial: skipped={was_skipped(second)}, held by {second['held_by'][0]}")
    say("00:00 It is midnight. The full refresh waits for its turn.")
    full = tasks.refresh_full.delay("acme")
    say(f"      partial: {first.get(timeout=60)}")
    say(f"      full:    {full.get(timeout=60)}")
    say("00:05 A refresh in two tasks: the lease goes with the chain.")
    result = chain(tasks.evaluate.s("acme", 7), tasks.store.s("acme")).delay()
    say(f"      chain:   {result.get(timeout=60)}")
    say(f"The cache has {len(cache.read())} audiences.")


def say(text: str) -> None:
    """At once: the worker prints to the same place."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
