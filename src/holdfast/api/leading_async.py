"""`locks.lead(…)`: a candidate for leadership, in campaign or in office. See `core.leading`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.api.info import HolderInfo
from holdfast.api.leader_watch_async import LeaderWatch
from holdfast.api.once_async import call
from holdfast.api.options import check_callback
from holdfast.core.caller_effects import Campaign, Ending, Lead, Raised, Resign
from holdfast.core.commands import Free
from holdfast.core.discreet import hidden
from holdfast.core.effects import Sleep
from holdfast.core.holds import NO_BEAT, Attempt
from holdfast.core.leading import lead_steps
from holdfast.core.records import SECOND
from holdfast.errors import HoldfastError, LeaseLost, UsageError
from holdfast.observe.log import logger, printable
from holdfast.runtime.flavour import ASYNC
from holdfast.runtime.run_async import run

if TYPE_CHECKING:
    from holdfast.api.leases_async import Lease
    from holdfast.api.locks_async import Locks

if ASYNC:
    import asyncio
else:
    import queue
    from contextlib import suppress


class Candidate:
    """One candidate for leadership: it campaigns, leads, and campaigns again.

    `serve()` does that until it is over. An `async with` block does it in the background for as
    long as the block runs. `stop()`, `resign()` and `hand_over()` may be called from anywhere;
    `stop()` also from a signal handler.
    """

    def __init__(
        self,
        locks: Locks,
        key: str,
        work: Callable[[Lease], Any],
        campaign: Callable[[Attempt], Any],
        new_attempt: Callable[[], Attempt],
        on_change: Callable[[HolderInfo | None], Any] | None,
        look_every_s: float,
    ) -> None:
        self._locks = locks
        self._key = key
        self._work = work
        self._get_lease = campaign
        self._new_attempt = new_attempt
        self._watch: LeaderWatch | None = None
        if on_change is not None:
            self._watch = LeaderWatch(locks, key, on_change, look_every_s)
        self._lock = threading.RLock()  # for the lease, its tickets and `resign()`
        # What was asked for. A handler that calls `stop()` may interrupt any line here, in the
        # thread that it would wait for. So these are plain values without a lock: `stop()` first
        # notes the wish and then looks what goes on, and a part that begins does it the other way
        # around. One of the two sees the other.
        self._stopped = False
        self._resigned = False
        self._end_part: Callable[[], object] | None = None  # ends what is going on, by a wish
        self._lease: Lease | None = None
        self._tickets: list[Future[str]] = []  # of a hand-over, for those who wait for them
        self._begun = False
        self._returned: Any = None

    def __repr__(self) -> str:
        return f"<Candidate for {self._key!r}{' in office' if self.leading else ''}>"

    @property
    def leading(self) -> bool:
        """Whether this candidate surely leads now. Never asks the store."""
        lease = self._lease
        return lease is not None and lease.held

    def stop(self) -> None:
        """End the campaign or the term. `serve()` returns when `run` has ended. A signal handler
        may call this."""
        self._stopped = True
        end_part = self._end_part
        if end_part is not None:
            end_part()

    def resign(self, to: Callable[[str], object] | None = None) -> None:
        """End the term, so that the next candidate leads at once, and campaign again behind those
        who wait. Does nothing if this candidate does not lead.

        `to` is a function that brings a ticket to the candidate of your choice, which leads next,
        before all who wait: `lead(…, ticket=ticket)`. It is called when `run` has ended.
        """
        if to is not None:
            check_callback(to, "to")
            ticket = self._new_ticket()
            if ticket is not None:
                ticket.add_done_callback(partial(_bring, to, self._key))
        with self._lock:
            if self._lease is None:
                return  # what goes on is no term, or not that one any more
            self._resigned = True
            end_part = self._end_part
        if end_part is not None:
            end_part()

    async def hand_over(self) -> str:
        """End the term and stop. Returns a ticket for the next leader: `lead(…, ticket=ticket)`.

        Until it comes, or the ttl is over, nobody else leads. Raises `LeaseLost` if the term ends
        without a hand-over: because `run` raises, or `serve` is cancelled.
        """
        ticket = self._new_ticket()
        if ticket is None:
            raise UsageError(f"Only a leader can hand over, but this does not lead {self._key!r}.")
        self.stop()
        if ASYNC:
            return await asyncio.wrap_future(ticket)
        else:
            return ticket.result()

    def _new_ticket(self) -> Future[str] | None:
        """Returns a ticket to come; None if this candidate does not lead."""
        with self._lock:  # the term may be ending
            if self._lease is None:
                return None
            ticket: Future[str] = Future()
            self._tickets.append(ticket)
            return ticket

    def _end_term(self) -> tuple[Lease | None, list[Future[str]]]:
        """Returns the lease, and the tickets that callers wait for. No more are added."""
        with self._lock:
            lease, tickets = self._lease, self._tickets
            self._lease, self._tickets = None, []
        # A caller that was cancelled does not wait any more: nothing is handed over for it.
        return lease, [ticket for ticket in tickets if ticket.set_running_or_notify_cancel()]

    @property
    def _wish(self) -> Ending | None:
        if self._stopped:
            return "stopped"
        return "resigned" if self._resigned else None

    def _begin_part(self, end_part: Callable[[], object]) -> None:
        """Begin a campaign or a term, which `end_part` ends early. It takes no lock that the thread
        which serves may hold."""
        self._end_part = end_part
        if self._wish is not None:  # it came a moment before
            end_part()

    # --- serve ------------------------------------------------------------------------------

    async def serve(self, *, stop_on: Iterable[int] = (signal.SIGTERM,)) -> Any:
        """Campaign and lead until it is over. Returns what `run` returned; None if stopped.

        Goes on through losses and through outages of the store, however long. Raises what `run`
        raises. In the main thread, the signals in `stop_on` stop it.
        """
        with self._lock:
            if self._begun:
                raise UsageError("This candidate has served already: call lead() again.")
            self._begun = True
        if ASYNC:
            self._cancelled_before = _cancellations()
        handlers: dict[type, Callable[[Any], Any]] = {
            Campaign: self._campaign,
            Lead: self._lead,
            Resign: self._resign,
            Sleep: self._sleep,
        }
        signals = _Signals(self.stop, stop_on)
        if self._watch is not None:
            self._watch.start()
        try:
            ending = await run(lead_steps(), {}, handlers)
        finally:
            if self._watch is not None:
                self._watch.stop()
            signals.restore()
            await self._give_back()
        return self._returned if ending == "returned" else None

    async def _give_back(self) -> None:
        """Give back what an exception has left behind."""
        lease, tickets = self._end_term()
        _settle(tickets, _not_handed_over(self._key))
        if lease is not None:
            await lease._leave()

    async def _campaign(self, asked: Campaign) -> Lease | None:
        if self._stopped:
            return None
        self._resigned = False
        lease = await self._run_campaign(self._new_attempt())
        if lease is not None and self._stopped:
            await lease._leave()
            return None
        return lease

    async def _lead(self, asked: Lead) -> Ending | Raised:
        lease = asked.lease
        self._lease = lease
        raised: Exception | None = None
        try:
            await self._run_term(lease)
        except Exception as why:
            raised = why
        finally:
            self._end_part = None
        ended_by_loss = lease.hold.state == "lost"
        if raised is not None and not (ended_by_loss and isinstance(raised, LeaseLost)):
            return Raised(raised)
        return self._wish or ("lost" if ended_by_loss else "returned")

    async def _resign(self, asked: Resign) -> None:
        _, tickets = self._end_term()
        if not tickets:
            await asked.lease._leave()
            return
        outcome: str | HoldfastError = _not_handed_over(self._key)
        try:
            outcome = hidden(await asked.lease.hand_over())
        except HoldfastError as why:
            outcome = why
        finally:
            _settle(tickets, outcome)

    if ASYNC:

        async def _run_campaign(self, attempt: Attempt) -> Lease | None:
            """Wait for the lease in a task of its own, which `stop()` cancels."""
            task = asyncio.ensure_future(self._get_lease(attempt))
            try:
                lease: Lease = await self._run_part(task)
                return lease
            except asyncio.CancelledError:
                await _release_late(task)
                if not self._was_stopped():
                    raise
                return None

        async def _run_term(self, lease: Lease) -> None:
            """Run the leader's work in a task of its own, which a loss cancels, too."""
            task = asyncio.ensure_future(call(self._work, lease))
            lease.on_lost(lambda lease: task.cancel())
            try:
                self._returned = await self._run_part(task)
            except asyncio.CancelledError:
                if self._being_cancelled() or not (self._wish or lease.hold.state == "lost"):
                    raise

        async def _run_part(self, task: asyncio.Future[Any]) -> Any:
            loop = asyncio.get_running_loop()
            self._begin_part(partial(loop.call_soon_threadsafe, task.cancel))
            try:
                outcome = await task
            finally:
                self._end_part = None
            if self._being_cancelled():  # and the task has swallowed it
                raise asyncio.CancelledError
            return outcome

        def _being_cancelled(self) -> bool:
            """Whether somebody cancels the task that serves."""
            return _cancellations() > self._cancelled_before

        def _was_stopped(self) -> bool:
            """Whether a part was cancelled because the candidate is to stop."""
            return self._stopped and not self._being_cancelled()

    else:

        def _run_campaign(self, attempt: Attempt) -> Lease | None:
            """Wait for the lease in a thread of its own, so that `stop()` need not wait for it."""
            outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()
            self._begin_part(partial(outcomes.put, None))
            threading.Thread(
                target=self._campaign_thread,
                args=(attempt, outcomes),
                name="holdfast-campaign",
                daemon=True,
            ).start()
            try:
                outcome = outcomes.get()
            except BaseException:
                self._abandon(attempt, outcomes)
                raise
            finally:
                self._end_part = None
            if isinstance(outcome, BaseException):
                raise outcome
            if outcome is None:
                self._abandon(attempt, outcomes)
            lease: Lease | None = outcome
            return lease

        def _campaign_thread(self, attempt: Attempt, outcomes: queue.SimpleQueue[Any]) -> None:
            try:
                outcomes.put(self._get_lease(attempt))
            except BaseException as why:
                outcomes.put(why)
            if attempt.given_up:
                _release_all(outcomes)

        def _abandon(self, attempt: Attempt, outcomes: queue.SimpleQueue[Any]) -> None:
            """Give up a campaign. Its thread ends when it next wakes; its place in the queue is
            given back now, because the program may end before."""
            attempt.given_up = True
            _release_all(outcomes)
            free = Attempt(attempt.key, Free(attempt.claimed), NO_BEAT, touched=True)
            self._locks._client.driver.undo((free,))

        def _run_term(self, lease: Lease) -> None:
            """Run the leader's work in this thread. `lease.lost` tells it to end."""
            self._begin_part(partial(_in_thread, lease.lost.set))
            self._returned = call(self._work, lease)

    async def _sleep(self, asked: Sleep) -> None:
        if ASYNC:
            pause = asyncio.ensure_future(asyncio.sleep(asked.duration / SECOND))
            try:
                await self._run_part(pause)
            except asyncio.CancelledError:
                if not self._was_stopped():
                    raise
        else:
            stopped: queue.SimpleQueue[None] = queue.SimpleQueue()
            self._begin_part(partial(stopped.put, None))
            with suppress(queue.Empty):
                stopped.get(timeout=asked.duration / SECOND)
            self._end_part = None

    # --- in the background ------------------------------------------------------------------

    async def __aenter__(self) -> Candidate:
        if ASYNC:
            self._serving = asyncio.ensure_future(self.serve(stop_on=()))
        else:
            self._serving: Future[Any] = Future()
            threading.Thread(
                target=self._serve_in_thread, name="holdfast-candidate", daemon=True
            ).start()
        return self

    async def __aexit__(self, kind: object, exception: object, traceback: object) -> None:
        self.stop()
        try:
            if ASYNC:
                await self._serving
            else:
                self._serving.result()
        except Exception:
            if exception is None:
                raise

    if not ASYNC:

        def _serve_in_thread(self) -> None:
            try:
                self._serving.set_result(self.serve(stop_on=()))
            except BaseException as why:
                self._serving.set_exception(why)


def _bring(to: Callable[[str], object], key: str, ticket: Future[str]) -> None:
    """Give the ticket of a hand-over to the function that brings it to the next leader."""
    if ticket.exception() is not None:
        logger.warning("The lease on %s was not handed over: it was lost before", printable(key))
        return
    try:
        to(ticket.result())
    except Exception:
        logger.exception(
            "The ticket for %s was not brought to the next leader: resign(to=…) failed",
            printable(key),
        )


def _not_handed_over(key: str) -> LeaseLost:
    """Returns the error for callers that wait for a ticket which will not come."""
    why = "the term ended before"
    return LeaseLost(f"The lease on {key!r} was not handed over: {why}.", key=key, why=why)


def _settle(tickets: Iterable[Future[str]], outcome: str | HoldfastError) -> None:
    """Give all who wait the same ticket, which only one can use, or say why there is none."""
    for ticket in tickets:
        if isinstance(outcome, str):
            ticket.set_result(str(outcome))
        else:
            ticket.set_exception(outcome)


if ASYNC:

    def _cancellations() -> int:
        """Returns how often the current task was asked to end and has not said that it goes on."""
        task = asyncio.current_task()
        return 0 if task is None else task.cancelling()

    async def _release_late(task: asyncio.Future[Any]) -> None:
        """Release a lease that came when its candidate was cancelled."""
        if task.done() and not task.cancelled() and task.exception() is None:
            await task.result()._leave()

else:

    def _release_all(outcomes: queue.SimpleQueue[Any]) -> None:
        """Release a lease that came when nobody waited for it any more."""
        while True:
            try:
                outcome = outcomes.get_nowait()
            except queue.Empty:
                return
            if outcome is not None and not isinstance(outcome, BaseException):
                outcome._leave()


class _Signals:
    """Calls a function when one of these signals comes, until `restore()`. In the main thread
    only: elsewhere Python takes no handlers."""

    def __init__(self, stop: Callable[[], object], numbers: Iterable[int]) -> None:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        for number in numbers:
            self._before[number] = signal.signal(number, lambda number, frame: stop())

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


if not ASYNC:

    def _in_thread(function: Callable[[], object]) -> None:
        """Call a function that needs a mutex, for somebody who may be a signal handler: what it has
        interrupted may have that mutex, as `lost.wait()` has that of its event."""
        threading.Thread(target=function, name="holdfast-stop", daemon=True).start()
