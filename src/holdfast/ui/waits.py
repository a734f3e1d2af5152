"""Who waits for whom, across keys. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.ui.seen import Json


def edges(locks: Iterable[Json]) -> list[Json]:
    """Returns one entry for each waiter and each holder that it waits for: who waits, for whom, on
    which key, and since when. Owners are all that is known of parties, so two parties of one name
    count as one."""
    return [
        {
            "waiter": waiter["owner"],
            "holder": holder["owner"],
            "key": lock["key"],
            "since": waiter["since"],
            "turn": turn,
        }
        for lock in locks
        for turn, waiter in enumerate(lock["waiters"], 1)
        for holder in lock["holders"]
    ]


def cycles(found: Iterable[Json]) -> list[list[str]]:
    """Returns the groups of owners that wait for each other in a circle, each sorted. Nobody in
    such a group gets on unless somebody gives up."""
    graph: dict[str, set[str]] = {}
    for edge in found:
        graph.setdefault(edge["waiter"], set()).add(edge["holder"])
        graph.setdefault(edge["holder"], set())
    groups = _connected(graph)
    return sorted(
        sorted(group)
        for group in groups
        if len(group) > 1 or next(iter(group)) in graph[next(iter(group))]
    )


def _connected(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Returns the strongly connected parts of a graph (Tarjan's way, without recursion)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    groups: list[set[str]] = []
    for root in graph:
        if root in number:
            continue
        work: list[tuple[str, Any]] = [(root, iter(sorted(graph[root])))]
        number[root] = lowest[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    above = work[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] == number[node]:
                    group = set()
                    while node not in group:
                        group.add(stack[-1])
                        on_stack.discard(stack.pop())
                    groups.append(group)
            elif following not in number:
                number[following] = lowest[following] = len(number)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(sorted(graph[following]))))
            elif following in on_stack:
                lowest[node] = min(lowest[node], number[following])
    return groups
