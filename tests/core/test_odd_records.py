"""The rules on records that Holdfast does not write by itself."""

from __future__ import annotations

import pytest

from holdfast.core import rules
from holdfast.core.commands import Claim, Decision, Granted, Mismatch, Stamp
from holdfast.core.records import Holder, Record, decode, encode
from holdfast.core.rules import Party
from tests.odd_records import commands, holder, odd_records

NOW = 1_700_000_000_000_000
RECORDS, COMMANDS = odd_records(NOW), commands()


def dead(party: Party) -> bool:
    """By a clock that shows NOW."""
    return bool(party.expires_at) and party.expires_at < NOW


def decide(command: str, record: Record) -> Decision:
    """What the rules make of it at NOW."""
    return rules.decide(COMMANDS[command], record, dead, Stamp(NOW, "new"))


@pytest.mark.parametrize("name", RECORDS)
def test_they_are_borne(name: str) -> None:
    """Whatever is there, the fence does not shrink, nobody is let in beside a living holder whom
    they exclude, and what is written can be read."""
    before = RECORDS[name]
    living = [one for one in before.holders if not dead(one)]
    known = {one.token for one in before.holders}
    for command in COMMANDS:
        after = decide(command, before).record
        if after is None:
            continue
        assert after.fence >= before.fence, command
        assert decode(encode(after)) == after, command
        new = [one for one in after.holders if one.token not in known]
        if isinstance(COMMANDS[command], Claim):
            assert all(_goes_with(one, other) for one in new for other in living), command


def _goes_with(one: Holder, other: Holder) -> bool:
    return one.mode == other.mode != "exclusive" and one.limit == other.limit


@pytest.mark.parametrize("name", RECORDS)
def test_the_second_time_changes_no_grant(name: str) -> None:
    """A command that arrives twice finds what it left: nobody else is let in or thrown out."""
    for command in COMMANDS:
        first = decide(command, RECORDS[name])
        if first.record is None:
            continue
        second = decide(command, first.record)
        assert type(second.verdict) is type(first.verdict), command
        holders = first.record.holders if second.record is None else second.record.holders
        assert [h.token for h in holders] == [h.token for h in first.record.holders], command
        if isinstance(first.verdict, Granted) and isinstance(second.verdict, Granted):
            assert second.verdict.holder.fence == first.verdict.holder.fence, command


def test_a_renewal_changes_one_holder() -> None:
    """Of two with the same token, the first, and the other stays as it is."""
    record = RECORDS["one token twice"]
    after = decide("renew x", record).record
    assert after is not None
    assert [one.beat for one in after.holders] == ["new", "b"]
    assert [one.fence for one in after.holders] == [7, 8]


@pytest.mark.parametrize("limits", [(None, 5), (5, None), (None, None, 5)])
def test_a_permit_without_a_limit_hides_no_other(limits: tuple[int | None, ...]) -> None:
    """The holder that does name another limit is told, wherever it stands."""
    record = Record(
        fence=1,
        holders=tuple(
            holder(f"t{place}", NOW, mode="counted", limit=limit)
            for place, limit in enumerate(limits)
        ),
    )
    assert decide("claim one of 3", record).verdict == Mismatch(5)
