"""The arithmetic of time: the store always gives at least as long as the holder takes."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.contract import Interval, exactly
from holdfast.core.validity import RATE, READING_GOOD_FOR, Reading, deadline

ttls = st.integers(50_000, 30 * 24 * 3600 * 10**6)
delays = st.integers(0, READING_GOOD_FOR // 3)
# How fast the store's clock runs by the client's: at most 1 in RATE apart.
rates = st.integers(-1000, 1000).map(lambda part: 1 + Fraction(part, 1000 * RATE))


@given(ttls, delays, delays, st.integers(0, 2_000_000), st.integers(0, 10**15), rates)
def test_holder_never_outlasts_the_store(
    ttl: int, until_read: int, until_write: int, doubt: int, epoch: int, rate: Fraction
) -> None:
    """At the holder's deadline the store's clock is not past the expiry that was written.

    A request is sent at 0, the store's clock is read `until_read` later (true time `epoch`
    somewhere in the interval it shows), and the write is sent `until_write` after that.
    """
    reading = Reading(Interval(epoch - doubt, epoch), sent=0, got=until_read)
    sent = until_read + until_write
    clock = reading.at(sent)
    assert clock is not None
    upper = clock.latest
    expires_at = upper + ttl

    def store_shows(m: int) -> Fraction:
        """At most this much, `doubt` being over by then."""
        return epoch + (m - until_read) * rate

    assert store_shows(sent) <= upper
    assert store_shows(deadline(sent, ttl)) <= expires_at


@given(ttls, st.integers(0, 10**12), rates)
def test_holder_gives_up_before_a_silent_observer_does(
    ttl: int, wrote: int, rate: Fraction
) -> None:
    """Where there is no clock: who sees a beat unchanged for a whole ttl comes after the
    holder's deadline, however fast the observer's clock runs."""
    seen = wrote  # no observer can see it before it was sent
    observed_ttl_later = seen + ttl / rate
    assert deadline(wrote, ttl) <= observed_ttl_later


@given(st.integers(0, 10**12), ttls)
def test_deadline_is_a_little_early(sent: int, ttl: int) -> None:
    """The holder gives up about one part in RATE of its ttl, and no more."""
    assert sent < deadline(sent, ttl) < sent + ttl
    assert sent + ttl - deadline(sent, ttl) <= ttl // RATE + 1


@given(st.integers(0, 10**15), st.integers(0, 10**9), st.integers(0, READING_GOOD_FOR))
def test_a_reading_goes_forward(at: int, sent: int, elapsed: int) -> None:
    """The upper bound never stands still behind the own clock, the lower one never passes it."""
    clock = Reading(exactly(at), sent, sent).at(sent + elapsed)
    assert clock is not None
    assert at <= clock.earliest <= at + elapsed <= clock.latest


@given(st.integers(0, 10**15), st.integers(1, 10**9), st.integers(0, 10**9), rates)
def test_a_reading_from_the_future(at: int, sent: int, before: int, rate: Fraction) -> None:
    """Another thread may have read the clock after our own time was taken: the upper bound
    holds all the same, whatever the rates."""
    clock = Reading(exactly(at), sent, sent + 5).at(sent - before)
    assert clock is not None
    assert clock.latest >= at - before * rate
    assert clock.earliest <= at


def test_an_old_reading_is_not_carried_on() -> None:
    """After a while the store must be asked again."""
    reading = Reading(exactly(5), 0, 0)
    assert reading.at(READING_GOOD_FOR) is not None
    assert reading.at(READING_GOOD_FOR + 1) is None
