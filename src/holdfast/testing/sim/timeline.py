"""A history for people: one line per event, one lane per client, the store on the right.

Times are true time in milliseconds from the start. Tokens and beats are cut short; in a
simulated world they are no secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.core import commands
from holdfast.core.effects import Amend, Apply, ApplyMany, Load, Scan, Swap, SwapMany, Wait
from holdfast.core.holds import Hold
from holdfast.core.records import Holder, Record, Waiter
from holdfast.testing.sim.ledger import Landing
from holdfast.testing.sim.ops import Op
from holdfast.testing.sim.plan import Plan

_SHORT = 4


def header(plan: Plan) -> list[str]:
    """What the world is like."""
    return [
        f"store     {plan.kind.name}: {plan.kind.like}",
        f"clients   {plan.clients}, each with {plan.workers} worker(s); keys {' '.join(plan.keys)}",
        f"ttls      {' '.join(f'{ttl / 1e6:g} s' for ttl in plan.ttls)}; "
        f"requests are given up after {plan.request_timeout / 1e6:g} s",
        f"faults    {' '.join(plan.faults) or 'none'}",
    ]


def lines(log: Iterable[tuple[int, str, str, Any]], clients: int) -> list[str]:
    """The history, one line per event."""
    return [_line(t, who, what, detail, clients) for t, who, what, detail in log]


def _line(t: int, who: str, what: str, detail: Any, clients: int) -> str:
    text = f"{what} {_say(detail)}".rstrip()
    stamp = f"{t / 1000:11.3f}  "
    if not who:
        return f"{stamp}{'· ' * clients}| {text}"
    slot = int(who.strip("c'"))
    lanes = ["· "] * max(clients, slot + 1)
    lanes[slot] = "● "
    return f"{stamp}{''.join(lanes)}| {who:4} {text}"


def _say(detail: Any) -> str:
    say = _WORDS.get(type(detail))
    if say is not None:
        return str(say(detail))
    if detail is None:
        return ""
    if isinstance(detail, BaseException):
        return f"{type(detail).__name__}: {detail}"
    return f"{detail / 1000:.3f}" if isinstance(detail, int) and detail > 100 else str(detail)


def _holder(holder: Holder) -> str:
    offered = " offered" if holder.offered else ""
    return (
        f"{holder.owner}:{holder.token[:_SHORT]} {holder.mode}{offered} "
        f"fence={holder.fence % 10**9} expires={holder.expires_at % 10**9} "
        f"beat={holder.beat[:_SHORT]}"
    )


def _waiter(waiter: Waiter) -> str:
    return f"{waiter.owner}:{waiter.token[:_SHORT]} {waiter.mode}"


def _record(record: Record) -> str:
    holders = ", ".join(_holder(holder) for holder in record.holders) or "free"
    queue = f"; queue {', '.join(_waiter(w) for w in record.queue)}" if record.queue else ""
    return f"[{holders}{queue}]"


def _landing(landing: Landing) -> str:
    late = " (late)" if landing.late else ""
    what = "deleted" if landing.deleted else _record(landing.after)
    return f"{landing.key}{late} by {landing.op}: {what}"


def _hold(hold: Hold) -> str:
    why = f", {hold.why}" if hold.why else ""
    return f"{hold.key}:{hold.token[:_SHORT]} {hold.holder.mode} fence={hold.fence % 10**9}{why}"


def _command(command: commands.Command) -> str:
    token = getattr(command, "token", "")
    return f"{type(command).__name__} {token[:_SHORT]}"


_WORDS: dict[type, Any] = {
    Load: lambda effect: f"load {effect.key}",
    Swap: lambda effect: (
        f"swap {effect.key} v{effect.version} "
        + ("away" if effect.record is None else _record(effect.record))
    ),
    SwapMany: lambda effect: f"swap {' '.join(swap.key for swap in effect.swaps)} in one trip",
    Amend: lambda effect: f"amend {effect.key} {_command(effect.change.command)}",
    Apply: lambda effect: f"apply {effect.key} {_command(effect.command)}",
    ApplyMany: lambda effect: f"apply {' '.join(one.key for one in effect.applies)} in one trip",
    Scan: lambda effect: "scan",
    Wait: lambda effect: f"for {effect.key}, at most {effect.at_most / 1000:.3f}",
    Landing: _landing,
    Hold: _hold,
    Op: str,
}
