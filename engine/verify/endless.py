"""Does every run end, whatever its limits? Shown over the states that stand for all of them.

A run that never ends goes round in a circle. Going round, it cannot spend for ever of what is never given back: so an
edge that spends a fuel which nothing in its part of the graph grants is on no such circle, and is taken out; the rest
falls into smaller parts, and so on. What is left after that can go on for ever, as far as this can tell.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from typing import NamedTuple

from engine.core.machine.expr import Lit
from engine.core.machine.machine import Grant, Refill, Rule, Spend
from engine.verify.cycles import Edge, components, shortest_way

ADMISSIONS = frozenset(("call", "final", "fallback", "retry", "round"))
"""Effects that let a run go on. Ticks and late reports may come as often as they like, and a reply has a finite number
of tool calls, each with a finite number of results."""

_LOOKED_AT = 32
"""Edges from which a way back is looked for: one circle is as good as the next, and there may be many."""


def spent_by(rule: Rule) -> frozenset[str]:
    """The fuels that a rule spends something of, unless they are empty."""
    spends = (u for u in rule.updates if isinstance(u, Spend) and isinstance(u.by, Lit) and u.by.value > 0)
    return frozenset(update.var for update in spends)


class Move(NamedTuple):
    """A rule with the fuels that it spends of, where something is left of them, and those that it may give back."""

    rule: Rule
    spends: frozenset[str]
    grants: frozenset[str]

    @classmethod
    def of(cls, rule: Rule, left: Set[str]) -> Move:
        """``left``: the fuels of which there is something."""
        grants = {u.var for u in rule.updates if isinstance(u, Grant | Refill)}
        return cls(rule, spent_by(rule) & left, frozenset(grants))

    @property
    def admits(self) -> bool:
        return self.rule.effect.kind in ADMISSIONS


def endless(
    size: int, edges: Sequence[Edge], moves: Sequence[Move], until: float = float("inf")
) -> tuple[Rule, ...] | None:
    """The rules of a shortest circle that may be gone round for ever and admits something; empty where every run ends.

    Edges are labelled with the number of their move. ``None``: the time was over before (``time.perf_counter``).
    """
    work = [list(edges)]
    while work:
        if time.perf_counter() > until:
            return None
        part = work.pop()
        for inside in _parts(size, part):
            if not any(moves[edge.label].admits for edge in inside):
                continue
            granted = frozenset[str]().union(*(moves[edge.label].grants for edge in inside))
            kept = [edge for edge in inside if not moves[edge.label].spends - granted]
            if len(kept) == len(inside):
                return _circle(inside, moves)
            work.append(kept)
    return ()


def _parts(size: int, edges: list[Edge]) -> list[list[Edge]]:
    """The edges inside each strongly connected part."""
    part_of = [-1] * size
    following: list[list[int]] = [[] for _ in range(size)]
    for edge in edges:
        following[edge.start].append(edge.end)
    for number, nodes in enumerate(components(following)):
        for node in nodes:
            part_of[node] = number
    inside: dict[int, list[Edge]] = {}
    for edge in edges:
        if part_of[edge.start] == part_of[edge.end]:
            inside.setdefault(part_of[edge.start], []).append(edge)
    return list(inside.values())


def _circle(edges: list[Edge], moves: Sequence[Move]) -> tuple[Rule, ...]:
    """A shortest one; rather one that gives back by itself what it spends."""
    admitting = [edge for edge in edges if moves[edge.label].admits][:_LOOKED_AT]
    circles = [(edge, *shortest_way(edges, edge.end, edge.start)) for edge in admitting]
    found = min(circles, key=lambda circle: (bool(_lost(circle, moves)), len(circle)))
    return tuple(moves[edge.label].rule for edge in found)


def _lost(circle: tuple[Edge, ...], moves: Sequence[Move]) -> frozenset[str]:
    spends, grants = (frozenset[str]().union(*sets) for sets in zip(*(moves[e.label][1:] for e in circle), strict=True))
    return spends - grants
