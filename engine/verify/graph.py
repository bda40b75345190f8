"""All states of a machine and what leads from one to the next: how far a run can go at most.

Where a run can go round in a circle without spending anything, that circle is one place here: time passes, a child is
spawned, a report is heard. Where it spends something on the way, there is no longest run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from engine.core.machine.machine import Machine, Phase
from engine.core.machine.monitors import Laws
from engine.core.machine.plan import Plan
from engine.verify.atomic import AtomicRounds, is_atomic
from engine.verify.cycles import components
from engine.verify.observe import observe
from engine.verify.successors import JUDGED, Branch, names_of, successors
from engine.verify.surplus import surplus_of

State = tuple[int, ...]
Label = int | tuple[Branch, ...]

SPENT = ("calls", "attempts", "rounds", "tools", "requests")
"""What is added up along a run: calls, further attempts that were decided on, rounds, executions, and the first two."""


@dataclass(frozen=True, slots=True)
class Longest:
    """The most of each that a run can come to; ``None`` where there is no most. ``cut``: why nothing is known."""

    most: dict[str, int | None]
    states: int
    cut: str = ""


class _Caught(dict[State, Label]):
    """A record of what has been seen that knows nothing: every way to every state is given out."""

    def __init__(self) -> None:
        super().__init__()
        self.ways: list[tuple[State, Label]] = []

    def __contains__(self, state: object) -> bool:
        return False

    def __setitem__(self, state: State, origin: Any) -> None:
        self.ways.append((state, origin[1]))


def longest(
    machine: Machine, plans: tuple[Plan, ...], *, max_states: int, max_seconds: float, max_open: int
) -> Longest:
    """How much a run can spend at most. What a host asks for again by itself is left out."""
    until = time.perf_counter() + max_seconds
    walk = _Walk(machine, plans, max_open)
    cut = walk.run(max_states, until)
    if cut:
        return Longest(dict.fromkeys(SPENT), len(walk.place), cut)
    return Longest(dict(zip(SPENT, _most(walk.ways), strict=True)), len(walk.place))


Weights = tuple[int, ...]
Ways = list[list[tuple[int, Weights]]]


class _Walk:
    def __init__(self, machine: Machine, plans: tuple[Plan, ...], max_open: int) -> None:
        laws = Laws((), (), plans)
        self.next = successors(machine, laws, max_open, surplus_of(machine, laws))
        self.plans = plans
        self.judged = names_of(machine, laws).index(JUDGED)
        self.atomic = AtomicRounds(machine, laws, max_open) if is_atomic(machine) else None
        self.place: dict[State, int] = {self.next.initial: 0}
        self.ways: Ways = []
        self._weights: dict[tuple[bool, int], Weights] = {}
        self._fired, self._held = [0] * len(self.next.branches), [0]

    def run(self, max_states: int, until: float) -> str:
        waiting = [self.next.initial]
        for number, state in enumerate(waiting):
            self.ways.append(self._from(state, waiting))
            if len(self.place) > max_states:
                return f"stopped after {max_states} states"
            if number % 1024 == 0 and time.perf_counter() > until:
                return "stopped because its time was over"
        return ""

    def _from(self, state: State, waiting: list[State]) -> list[tuple[int, Weights]]:
        caught = _Caught()
        function = self.next.functions.get(state[0])
        if function is None:
            return []
        if self.atomic is not None and state[0] == Phase.JUDGING and not state[self.judged]:
            self.atomic.judge(state, caught, _ignored, self._held, _ignored)  # type: ignore[arg-type]
        else:
            function(state, caught, _ignored, self._fired, self._held, _ignored)
        ways = set()
        for after, label in caught.ways:
            weights = self._weight(state, label)
            if after == state and not any(weights):
                continue
            if weights is _AGAIN:
                continue
            place = self.place.setdefault(after, len(self.place))
            if place == len(waiting):
                waiting.append(after)
            ways.add((place, weights))
        return list(ways)

    def _weight(self, state: State, label: Label) -> Weights:
        if isinstance(label, tuple):
            return tuple(map(sum, zip(*(self._of(branch, waiting=True) for branch in label), strict=True)))
        key = (state[0] == Phase.WAITING, label)
        if key not in self._weights:
            self._weights[key] = self._of(self.next.branches[label], waiting=key[0])
        return self._weights[key]

    def _of(self, branch: Branch, *, waiting: bool) -> Weights:
        if branch.event == "attempt" and not waiting:
            return _AGAIN
        seen = [kind for kind, _ in observe(self.plans, branch.event, branch.fields, branch.rule.effect)]
        tools = seen.count("execute") + seen.count("granted")
        calls, attempts = seen.count("call"), seen.count("attempt")
        return calls, attempts, seen.count("round"), tools, calls + attempts


_AGAIN: Weights = (-1,) * len(SPENT)


def _ignored(*_: object) -> None:
    """Nothing is wanted of it."""


def _most(ways: Ways) -> list[int | None]:
    """The most along any way from the first place, of each weight; ``None`` where a circle adds to it."""
    members = components([[after for after, _ in leads] for leads in ways])
    component = [0] * len(ways)
    for number, places in enumerate(members):
        for place in places:
            component[place] = number
    endless = [False] * len(SPENT)
    best: list[list[int]] = []
    for places in members:
        top = [0] * len(SPENT)
        for place in places:
            for after, weights in ways[place]:
                if component[after] == component[place]:
                    endless = [e or bool(w) for e, w in zip(endless, weights, strict=True)]
                else:
                    top = [max(t, w + b) for t, w, b in zip(top, weights, best[component[after]], strict=True)]
        best.append(top)
    first = best[component[0]]
    return [None if e else value for e, value in zip(endless, first, strict=True)]
