# Made from patterns_async.py by tools/async_to_sync.py: change that, and run `make generate`.
"""What people build on a lock: one result for many (`once`), one process that leads (`lead`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from holdfast.api.guard import Guarded, Within
from holdfast.api.info import HolderInfo, LockInfo
from holdfast.api.options import Seconds, check_callback, check_ttl
from holdfast.core.acquiring import acquire_steps
from holdfast.core.discreet import hidden
from holdfast.core.handing_over import enter_steps
from holdfast.core.holds import Attempt
from holdfast.core.records import SECOND
from holdfast.errors import BadOption, TicketRefused, UsageError
from holdfast.observe.log import logger, printable
from holdfast.runtime import clock

# `Candidate` and `OnceCall` are imported by the calls that need them: most programs call neither.
if TYPE_CHECKING:
    from holdfast.api.client import FaceClient
    from holdfast.api.leading import Candidate
    from holdfast.api.leases import Lease
    from holdfast.api.locks import Locks
    from holdfast.results.base import Found, Results


P = ParamSpec("P")
R = TypeVar("R")


class Patterns:
    """The part of `Locks` that is made of its other calls."""

    # --- once -------------------------------------------------------------------------------

    def once(
        self,
        key: str,
        *,
        make: Callable[[Lease], Any],
        find: Callable[[], Any] | None = None,
        into: Results | None = None,
        ttl: Seconds | None = None,
        timeout: Seconds | None = None,
        owner: str | None = None,
        note: dict[str, Any] | None = None,
    ) -> Any:
        """Returns the one result that everybody who asks for this key gets.

        If there is none yet, the first caller makes it under the lock, and the others wait. A maker
        that dies is replaced when its ttl is over; one that raises lets the next caller try, and
        its own caller gets the exception. So work can begin more than once, but only one result is
        published at a time.

        make      is called with the lease, makes the result and publishes it
        find      returns the published result, or None
        into      instead of `find`: a place for results (`holdfast.results`), where what `make`
                  returns is published
        ttl       how long a maker that died keeps the others waiting
        timeout   how long to wait for the result before `AcquireTimeout`; 0: do not wait for others
        """
        from holdfast.api.once import OnceCall, check_function

        if (find is None) == (into is None):
            raise UsageError("once() takes either find (a function) or into (a place for results).")
        if into is not None:
            check_place(into)
            place = _Place(into, key, check_function(make, "make"))
            find, make = place.find, place.make
        assert find is not None
        options = {"ttl": ttl, "owner": owner, "note": note}
        found = OnceCall(cast("Locks", self), key, find, make, timeout, options).result()
        return found if into is None else found.value

    def once_per(
        self, key: str, *, into: Results, **options: Any
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Run a function once for each key, which is made from its arguments as in `guard`.

        Every call returns the one result that is kept in `into`. Other options are those of
        `once`.
        """
        check_place(into)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            guarded = Guarded(function, key, "wait")

            @functools.wraps(function)
            def run(*args: Any, **kwargs: Any) -> Any:
                from holdfast.api.once import call

                def make(lease: Lease) -> Any:
                    with Within(lease):
                        made = call(functools.partial(function, *args, **kwargs))
                    guarded.check_ran(made)
                    return made

                name = guarded.key(args, kwargs)
                return self.once(name, make=make, into=into, **options)

            return run

        return decorate

    # --- lead -------------------------------------------------------------------------------

    def lead(
        self,
        key: str,
        run: Callable[[Lease], Any],
        *,
        ttl: Seconds | None = None,
        owner: str | None = None,
        note: dict[str, Any] | None = None,
        watchdog: Seconds | None = None,
        on_change: Callable[[HolderInfo | None], Any] | None = None,
        ticket: str | None = None,
    ) -> Candidate:
        """Returns a candidate for leadership: of all candidates for a key, one at a time leads.

        `candidate.serve()` campaigns for as long as it takes, through outages of the store too, and
        calls `run(lease)` when it leads. When the lease is lost, `run` is told: in asyncio its task
        is cancelled; in threads `lease.lost` is set and `lease.check()` raises. Then the candidate
        campaigns again. `run` never runs twice at a time in one process.

        ttl        how long a leader that died keeps the others waiting
        watchdog   the leader loses its lease if `run` does not call `lease.alive()` this often
        on_change  is called with the leader, or None, when that changes
        ticket     what `hand_over()` of the leader before returned: follows that leader
        """
        from holdfast.api.leading import Candidate
        from holdfast.api.once import check_function

        check_function(run, "run")
        if on_change is not None:
            check_callback(on_change, "on_change")
        requests = self._here().requests
        terms = requests.leading_terms(watchdog)
        tickets = [] if ticket is None else [hidden(ticket)]

        def new_attempt() -> Attempt:
            return self._here().requests.claim(key, ttl, None, None, owner, note, terms)

        def campaign(attempt: Attempt) -> Lease:
            here = self._here()
            if tickets:
                taking = here.requests.take(tickets.pop(), owner, ttl, note)
                until = here.requests.answers_by()
                steps = enter_steps(here.observations, taking, terms.care, until)
                try:
                    return here.enter(taking, steps, "taken")
                except TicketRefused:
                    logger.info("The ticket for %s came too late: campaigning", printable(key))
            steps = acquire_steps(here.observations, attempt, terms, clock.monotonic())
            return here.enter(attempt, steps, "acquired")

        new_attempt()  # checks the arguments
        look_every_s = (requests.ttl if ttl is None else check_ttl(ttl)) / SECOND / 3
        return Candidate(
            cast("Locks", self), key, run, campaign, new_attempt, on_change, look_every_s
        )

    def leader(self, key: str) -> HolderInfo | None:
        """Returns who leads now: the holder of this key, or None."""
        holders = (self.show(key)).holders
        return holders[0] if holders else None

    # --- of `Locks` -------------------------------------------------------------------------

    def show(self, key: str) -> LockInfo:
        raise NotImplementedError

    def _here(self) -> FaceClient:
        raise NotImplementedError


def check_place(into: Any) -> None:
    """Raise if this is no place for results: a path is the usual mistake."""
    if not callable(getattr(into, "publish", None)):
        raise BadOption(
            f"into is a place for results, such as holdfast.results.DirectoryResults(PATH), "
            f"not {type(into).__name__}."
        )


class _Place:
    """A place for results, as the two functions of `once`. In asyncio it works in a thread."""

    def __init__(self, results: Results, key: str, make: Callable[[Lease], Any]) -> None:
        self._results = results
        self._key = key
        self._make = make

    def find(self) -> Found | None:
        return self._results.find(self._key)

    def make(self, lease: Lease) -> None:
        from holdfast.api.once import call

        made = call(self._make, lease)
        lease.check()
        self._results.publish(self._key, made, lease)
