"""Two machines told the same, breadth first: where do they first decide otherwise, as seen from outside?

A run is followed while both decide alike. It ends where they do not: the first such run of each kind (event, old
decision, new decision) is a shortest one. What both see is shared (``joint_fields``); amounts are free in every step,
as the search through one machine has them, so that what is found must be played before it is believed (``both``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.core.machine.machine import FieldDef, Machine, Phase
from engine.core.policy import Policy
from engine.verify.choices import Open
from engine.verify.explore import uncollected
from engine.verify.joint_fields import LEFT, JointFields
from engine.verify.joint_steps import Outlooks, React, Side, State, Told
from engine.verify.outlooks import BACK_TO_FAILURE, Outlook
from engine.verify.successors import IMPOSSIBLE, Branch
from engine.verify.traces import TraceStep, trace
from engine.verify.world import World, around

Joint = tuple[State, State, int, int, int, int]
"""Both machines' values, then what a host keeps beside them: calls judged and held, a failure in hand, and whether a
model was heard of (where that is looked at)."""

_KEPT = 4
"""Runs kept of each kind of difference: not every one can be played."""

_CHUNK = 1024

Progress = Callable[[int, int], None]


class Parting(NamedTuple):
    """A run after which two machines decide otherwise: the event, both outlooks, and the run in each machine."""

    event: str
    old: Outlook
    new: Outlook
    traces: tuple[tuple[TraceStep, ...], tuple[TraceStep, ...]]


@dataclass(frozen=True)
class Joined:
    """What a search has found. ``cut`` says why it stopped early; ``lost`` that the machines came to stand apart."""

    partings: tuple[Parting, ...]
    states: int
    transitions: int
    depth: int
    seconds: float
    cut: str = ""
    lost: bool = False


@dataclass(frozen=True)
class _Choice:
    told: Told
    reacts: tuple[React, React]


def joined(
    policies: Sequence[Policy],
    machines: Sequence[Machine],
    *,
    plain: bool,
    max_states: int,
    max_seconds: float,
    max_open: int = 2,
    progress: Progress = lambda states, depth: None,
) -> Joined:
    """Follow all runs of two policies. ``plain``: no agent hands over to another one, nothing odd happens."""
    search = Product(policies, alone(policies, machines, plain=plain), max_open, plain)
    with uncollected():
        return search.run(max_states, max_seconds, progress)


def alone(policies: Sequence[Policy], machines: Sequence[Machine], *, plain: bool) -> list[Machine]:
    """Both machines in a world without anybody above them, and without what only one of them could be told."""
    world = World(ancestors=False, clients=True, pauses=not plain)
    made = [around(m, p, world) for m, p in zip(machines, policies, strict=True)]
    return [_without(m, plain, policies) for m in made]


_ODD = ("handoff", "spawn", "tick", "hosted", "unstarted")
"""What runs may do without, when only the shortest one is wanted."""

_UNKNOWN_USE = {"unmetered": ("tokens", "input_tokens", "output_tokens", "cost"), "unpriced": ("cost",)}
"""Events that come only where such an amount is limited."""


def _without(machine: Machine, plain: bool, policies: Sequence[Policy]) -> Machine:
    left_out: set[str] = set(_ODD) if plain else set()
    for event, resources in _UNKNOWN_USE.items():
        limited = [any(x.max is not None and x.resource in resources for x in p.limits) for p in policies]
        if not all(limited):
            left_out.add(event)
    events = {name: kind for name, kind in machine.events.items() if name not in left_out}
    if plain:
        unheard_of = any(x.resource == "unknown_tools" for p in policies for x in p.limits)
        odd = _ODD_FIELDS if unheard_of else _ODD_FIELDS | {"unknown"}
        pinned = {name: tuple(_pinned(f) if f.name in odd else f for f in kind.fields) for name, kind in events.items()}
        events = {name: replace(kind, fields=pinned[name]) for name, kind in events.items()}
    possible = {
        name: tuple(rule for rule in rules if rule.effect.kind != IMPOSSIBLE) for name, rules in machine.rules.items()
    }
    return replace(machine, events=events, rules=possible)


def _pinned(field: FieldDef) -> FieldDef:
    return replace(field, values=(0,))


_ODD_FIELDS = frozenset(("invalid", "delivered", "cut", "unasked"))
"""What seldom happens, and changes little about how far a run goes."""


class Product:
    """The search. ``found`` are the states and choices of each kind of difference: event, old and new outlook."""

    def __init__(self, policies: Sequence[Policy], machines: Sequence[Machine], max_open: int, plain: bool) -> None:
        self.outlooks = Outlooks()
        fields = JointFields(policies, machines)
        self.fields, self.max_open = fields, max_open
        self.sides = tuple(Side(i, machines[i], fields, self.outlooks) for i in (0, 1))
        self.kinds = self._kinds(machines)
        self.choices: list[_Choice] = []
        self.by_phase = {phase: self._of_phase(phase) for phase in range(len(Phase.NAMES)) if phase != Phase.ENDED}
        self.asks = any(p.ask for policy in policies for p in policy.tools)
        self.initial: Joint = (self.sides[0].initial, self.sides[1].initial, 0, 0, 0, 0 if plain else 1)
        self.early = frozenset(n for n, choice in enumerate(self.choices) if _uses(choice.told))
        self.seen: dict[Joint, tuple[Joint, int] | None] = {self.initial: None}
        self.found: dict[tuple[str, int, int], list[tuple[Joint, int]]] = {}
        self.transitions = self.depth = 0
        self.lost = False

    def _kinds(self, machines: Sequence[Machine]) -> dict[str, frozenset[int]]:
        """Events that both may be told, and when."""
        shared = [name for name in machines[0].events if name in machines[1].events]
        return {name: machines[0].events[name].phases & machines[1].events[name].phases for name in shared}

    def _of_phase(self, phase: int) -> list[tuple[str, list[tuple[int, React, React]]]]:
        out = []
        for event, phases in self.kinds.items():
            if phase not in phases:
                continue
            made: list[tuple[int, React, React]] = []
            known: set[tuple[str, str]] = set()
            for told, texts, reacts in self._split(Told(event, phase, {})):
                if texts not in known:
                    known.add(texts)
                    made.append((len(self.choices), *reacts))
                    self.choices.append(_Choice(told, reacts))
            out.append((event, made))
        return out

    def _split(self, told: Told) -> Iterator[tuple[Told, tuple[str, str], tuple[React, React]]]:
        """Every way to be told an event that makes a difference to one of the machines, the mildest first."""
        try:
            (a, first), (b, second) = (side.reaction(told) for side in self.sides)
        except Open as missing:
            for place in range(len(self.fields.values[missing.name])):
                yield from self._split(Told(told.event, told.phase, {**told.known, missing.name: place}))
            return
        yield told, (a, b), (first, second)

    # ---- the search

    def run(self, max_states: int, max_seconds: float, progress: Progress) -> Joined:
        began = time.perf_counter()
        cut = self._search(max_states, began + max_seconds, progress)
        partings = tuple(self._partings())
        seconds = time.perf_counter() - began
        return Joined(partings, len(self.seen), self.transitions, self.depth, seconds, cut, self.lost)

    def _search(self, max_states: int, until: float, progress: Progress) -> str:
        level = [self.initial]
        while level:
            following: list[Joint] = []
            for first in range(0, len(level), _CHUNK):
                for state in level[first : first + _CHUNK]:
                    self._follow(state, following)
                if len(self.seen) > max_states:
                    return f"stopped after {max_states} states"
                if time.perf_counter() > until:
                    return "stopped because its time was over"
                progress(len(self.seen), self.depth)
            level = following
            self.depth += bool(level)
        return ""

    def _follow(self, state: Joint, following: list[Joint]) -> None:
        a, b, judged, held, failing, heard = state
        found = self.found
        if a[0] != b[0]:
            self.lost = self.lost or Phase.ENDED not in (a[0], b[0])
            return
        for event, choices in self.by_phase.get(a[0], ()):
            if not self._may(event, state):
                continue
            for number, first, second in choices:
                if not heard and number in self.early:
                    continue
                one, after_a = first(a)
                two, after_b = second(b)
                self.transitions += 1
                if one != two:
                    kept = found.setdefault((event, one, two), [])
                    if len(kept) < _KEPT and not any(number == known for _, known in kept):
                        kept.append((state, number))
                    continue
                beside = self._beside(event, self.outlooks.found[one].word, judged, held, failing)
                if beside is None:
                    continue
                self._reached(state, number, (after_a, after_b, *beside, heard or event in _HEARING), following)

    def _reached(self, state: Joint, number: int, after: Joint, following: list[Joint]) -> None:
        if after not in self.seen:
            self.seen[after] = (state, number)
            following.append(after)

    def _may(self, event: str, state: Joint) -> bool:
        a, _, judged, held, failing, _ = state
        if event == "tool":
            return judged < self.max_open
        if event == "judged":
            return judged > 0
        if event in ("granted", "withheld"):
            return held > 0
        if event in ("tool_end", "tool_ends", "unstarted"):
            return a[_OPEN] > held
        return not (failing and a[0] == Phase.CALLING and event != "failed")

    def _beside(self, event: str, word: str, judged: int, held: int, failing: int) -> tuple[int, int, int] | None:
        """What a host remembers after an event; ``None`` if the judging of a round was given up."""
        if event == "tool":
            asked = word == "ask a person"
            return judged + 1, held + asked, failing
        if event in ("round", "judged"):
            return 0, 0 if event == "round" else held, 0
        if event in ("tool_end", "unstarted"):
            return self.max_open if word == "again" else judged, held, failing
        if event in ("granted", "withheld"):
            return judged, held - 1, failing
        if word == "failed" or (event == "resolved" and word == BACK_TO_FAILURE):
            return judged, held, 1
        return judged, held, 0 if event == "failed" else failing

    # ---- what was found

    def _partings(self) -> Iterator[Parting]:
        for (event, one, two), kept in self.found.items():
            for state, number in kept:
                yield Parting(event, self.outlooks.found[one], self.outlooks.found[two], self._traces(state, number))

    def _traces(self, state: Joint, number: int) -> tuple[tuple[TraceStep, ...], tuple[TraceStep, ...]]:
        numbers = [number]
        step = self.seen[state]
        while step is not None:
            numbers.append(step[1])
            step = self.seen[step[0]]
        numbers.reverse()
        first, second = (trace(side.machine, self._branches(side, numbers)) for side in self.sides)
        return first, second

    def _branches(self, side: Side, numbers: Sequence[int]) -> list[Branch]:
        state, out = side.initial, []
        for number in numbers:
            found, state = side.branches(self.choices[number].told, state)
            out += found
        return out


def _uses(told: Told) -> bool:
    """Must something have been used before, for the event to come like this?"""
    return any(name.startswith(LEFT) and "wall" not in name and place for name, place in told.known.items())


_HEARING = frozenset(("round", "empty", "failed", "paused"))
"""Events that tell what a model has used."""

_OPEN = 3
"""Where the number of open tool calls stands among a machine's values."""
