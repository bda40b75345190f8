"""Where a run is when each rule of its machine fires: what a picture of a policy draws. A process of its own:

    python -m engine.verify.passages < request > answer

The request is ``{"policy": …}`` in JSON, the answer that of ``passages``. It is bounded by states and steps, not by
time, so that one policy always has one answer; whoever asks can end the process when it has waited long enough.
"""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from typing import Any

from engine.core.machine.build import build
from engine.core.machine.machine import Machine, Phase, Sort
from engine.core.machine.monitors import Laws
from engine.core.machine.plan import plans_of
from engine.core.policy import Policy
from engine.verify.explore import Search, State

MAX_STATES = 150_000
MAX_STEPS = 40_000
"""Steps of random runs where there are more states than may be visited: they come to limits that lie far away."""

_LONGEST = 4_000
_OPEN = 2


def passages(policy: Policy) -> dict[str, Any]:
    """``rules``: the id of each rule that fires, to the places where it does: the name of a phase, or ``final`` while
    the final call is made. ``cut`` says why others may fire as well; where it is empty, none does in any run whose
    rounds have at most two tools."""
    machine = build(policy)
    search = Search(machine, Laws((), (), plans_of(policy)), _OPEN)
    cut = search.run(MAX_STATES, float("inf"))
    places = _Places(machine, search)
    for state in tuple(search.seen):  # a visit adds those beyond the last level
        places.visit(state, search.seen)
    if cut:
        places.wander()
    sampled = search.next.sampled
    return {
        "cut": cut or (f"not every value of {', '.join(sorted(set(sampled)))} was tried" if sampled else ""),
        "rules": places.found(),
    }


class _Places:
    """What fired where."""

    def __init__(self, machine: Machine, search: Search) -> None:
        self.search = search
        self.reason = [v.name for v in machine.variables if v.sort is not Sort.METER].index("reason")
        self.fired: dict[str, list[int]] = defaultdict(lambda: [0] * len(search.next.branches))

    def visit(self, state: State, seen: dict[State, Any]) -> list[State]:
        """Fire all that can fire in a state; gives the successors that are not among those seen."""
        function = self.search.functions.get(state[0])
        following: list[State] = []
        if function is not None:
            place = "final" if state[self.reason] else Phase.NAMES[state[0]]
            function(state, seen, following.append, self.fired[place], self.search.held, self.search.broke)
        return following

    def wander(self) -> None:
        """Random runs that go on as long as they can. The dice are loaded: they always fall alike."""
        dice, steps = random.Random(0), 0
        while steps < MAX_STEPS:
            state = self.search.next.initial
            for _ in range(_LONGEST):
                following = self.visit(state, {state: None})
                steps += 1
                alive = [s for s in following if s[0] not in (Phase.STOPPING, Phase.ENDED)]
                if not alive:
                    break
                # The final call ends a run soon: it is made where nothing else is left, or once in a while.
                ordinary = [s for s in alive if not s[self.reason]]
                state = dice.choice(ordinary if ordinary and dice.random() < 0.99 else alive)

    def found(self) -> dict[str, list[str]]:
        rules: dict[str, set[str]] = defaultdict(set)
        for place, counts in self.fired.items():
            for branch, count in zip(self.search.next.branches, counts, strict=True):
                if count:
                    rules[branch.rule.id].add(place)
        if self.search.atomic is not None:
            for rule in self.search.atomic.fired:
                rules[rule].add(Phase.NAMES[Phase.JUDGING])
        return {rule: sorted(places) for rule, places in sorted(rules.items())}


def main() -> None:
    request = json.load(sys.stdin)
    json.dump(passages(Policy.model_validate(request["policy"])), sys.stdout)


if __name__ == "__main__":
    main()
