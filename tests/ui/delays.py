"""How long the page takes to show what happens: python -m tests.ui.delays [ROUNDS]

On SQLite, Redis and PostgreSQL, with the page's usual interval: a lock appears, somebody waits for
it, it is handed over, and its holder is lost (evicted). The page notes by itself when its row
changes; both clocks are this machine's.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from playwright.sync_api import Page, sync_playwright

import holdfast
from tests.engines.chromium import Chromium
from tests.engines.postgres import PostgreSQL
from tests.engines.redis import RedisServer
from tests.engines.shared import shared
from tests.helpers import unique
from tests.ui.served import served

WHAT = ("appears", "is waited for", "is handed over", "is lost")
# Notes when the rows first had these words, or, after a "!", did not have them any more.
WATCH = """() => {
  window.seen = {};
  const look = () => {
    const text = document.getElementById("rows").innerText;
    for (const words of window.wanted ?? [])
      if (text.includes(words.replace("!", "")) === !words.startsWith("!"))
        window.seen[words] ??= Date.now();
  };
  new MutationObserver(look).observe(document.getElementById("rows"),
    { childList: true, subtree: true, characterData: true });
  window.look = look;
}"""


class Watched:
    """A page that notes when words appear in it."""

    def __init__(self, page: Page) -> None:
        self._page = page
        page.evaluate(WATCH)

    def delay(self, words: str, do: Callable[[], Any]) -> float:
        """Seconds from the end of what is done to the moment at which the words were shown."""
        self._page.evaluate("words => { window.wanted = [words]; }", words)
        do()
        done = time.time()
        self._page.wait_for_function(
            "words => (look(), words in seen)", arg=words, timeout=60_000, polling=20
        )
        shown: float = self._page.evaluate("words => seen[words]", words)
        return max(0.0, shown / 1000 - done)


def round_of(place: str, watched: Watched) -> Iterator[float]:
    """Yields the delays of one lock's life."""
    mark = unique()
    key = f"life:{mark}"
    with (
        holdfast.connect(place, owner=f"ann-{mark}", ttl=60) as locks,
        holdfast.connect(place, owner=f"bob-{mark}", ttl=60) as other,
    ):
        held: list[Any] = []
        yield watched.delay(f"ann-{mark}", lambda: held.append(locks.acquire(key)))
        waiter = threading.Thread(target=_wait, args=(other, key), daemon=True)

        def wait() -> None:
            waiter.start()
            while not locks.show(key).waiters:
                time.sleep(0.002)

        yield watched.delay(f"bob-{mark}", wait)

        def hand_over() -> None:
            held.append(locks.take(held.pop().hand_over(), owner=f"cy-{mark}"))

        yield watched.delay(f"cy-{mark}", hand_over)
        yield watched.delay(f"!cy-{mark}", lambda: locks.evict(key, reason="measured"))
        other.close()
        waiter.join(10)


def _wait(locks: holdfast.Locks, key: str) -> None:
    with contextlib.suppress(holdfast.HoldfastError):
        locks.acquire(key, fair=True, timeout=60)


def stores(folder: str) -> dict[str, str]:
    """Stores of our own."""
    return {
        "SQLite": f"sqlite:///{folder}/locks.db",
        "Redis": f"{shared(RedisServer).url}?namespace={unique()}",
        "PostgreSQL": shared(PostgreSQL).url(),
    }


def main(rounds: int) -> None:
    """Print a table of the medians, and the longest in brackets."""
    logging.disable()
    say = sys.stdout.write
    say(f"| store | {' | '.join(WHAT)} |\n|---|{'---|' * len(WHAT)}\n")
    with tempfile.TemporaryDirectory() as folder, Chromium() as chromium, sync_playwright() as play:
        browser = play.chromium.connect_over_cdp(chromium.url)
        for name, place in stores(folder).items():
            with holdfast.connect(place) as locks:
                locks.setup()
            with served(place, interval=None) as server:
                page = browser.new_page()
                page.goto(server.address)
                page.wait_for_selector("#status[data-state=live]")
                watched = Watched(page)
                took = list(zip(*(round_of(place, watched) for _ in range(rounds)), strict=True))
                page.close()
            cells = (f"{sorted(all_)[rounds // 2]:.2f} ({max(all_):.2f})" for all_ in took)
            say(f"| {name} | {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
