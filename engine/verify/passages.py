"""Where a run is when each rule of its machine fires: what a picture of a policy draws. A process of its own:

    python -m engine.verify.passages < request > answer

The request is ``{"policies": […]}`` in JSON, the answer a list of what ``passages`` gives for each. It is bounded by
states and steps, not by time, so that one policy always has one answer; whoever asks can end the process when it has
waited long enough.
"""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from engine.core.machine.build import build
from engine.core.machine.machine import Phase, Sort
from engine.core.machine.monitors import Laws
from engine.core.machine.plan import plans_of
from engine.core.policy import Policy
from engine.verify.explore import Search, State

MAX_STATES = 100_000
MAX_STEPS = 30_000
"""Steps of random runs where there are more states than may be visited: they come to limits that lie far away."""

_LONGEST = 4_000
"""Steps of one of them."""

_OPEN = 2
"""Calls of a round that are tried."""

_OF_CALLS = ("tool_calls", "unknown_tools")


def passages(policy: Policy) -> dict[str, Any]:
    """``rules``: the id of each rule that fires, to the places where it does: the name of a phase, or ``final`` while
    the final call is made. ``cut`` says why others may fire as well; where it is empty, none does."""
    rules: dict[str, set[str]] = defaultdict(set)
    cut = ""
    for other in _with_few_tools(policy):
        found = _Places(other)
        why = found.search_all()
        cut = cut or why
        for rule, places in found.found():
            rules[rule] |= places
    return {"cut": cut, "rules": {rule: sorted(places) for rule, places in sorted(rules.items())}}


def _with_few_tools(policy: Policy) -> list[Policy]:
    """Policies whose rules, taken together, fire where those of this one do.

    The search tries rounds of two calls, and a model may ask for a hundred at once: what 60 allow may be gone after one
    round. So limits of tools are seen once as never reached (for every call may also be answered instead of executed),
    and once as reached by the second call. That also leaves far fewer states to visit.
    """
    many = [x for x in policy.limits if x.resource in _OF_CALLS and x.max is not None and x.max > _OPEN]
    if not many:
        return [policy]
    made = []
    for most in (None, _OPEN):
        limits = tuple(x.model_copy(update={"max": most}) if x in many else x for x in policy.limits)
        made.append(policy.model_copy(update={"limits": limits}))
    return made


class _Places:
    """What fired where."""

    def __init__(self, policy: Policy) -> None:
        machine = build(policy)
        self.search = search = Search(machine, Laws((), (), plans_of(policy)), _OPEN)
        names = [v.name for v in machine.variables if v.sort is not Sort.METER]
        self.reason, self.pending = names.index("reason"), names.index("pending")
        self.fired: dict[str, list[int]] = defaultdict(lambda: [0] * len(search.next.branches))

    def search_all(self) -> str:
        """Visit the states; gives why some were not, or ""."""
        cut = self.search.run(MAX_STATES, float("inf"))
        for state in tuple(self.search.seen):  # a visit adds those beyond the last level
            self.visit(state, self.search.seen)
        if cut:
            self.wander()
        sampled = ", ".join(sorted(set(self.search.next.sampled)))
        return cut or (f"not every value of {sampled} was tried" if sampled else "")

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
            eager = dice.random() < 0.5
            for _ in range(_LONGEST):
                following = self.visit(state, {state: None})
                steps += 1
                alive = [s for s in following if s[0] not in (Phase.STOPPING, Phase.ENDED)]
                if not alive:
                    break
                # The final call ends a run soon: it is made where nothing else is left, or once in a while.
                ordinary = [s for s in alive if not s[self.reason] and not s[self.pending]]
                alive = ordinary if ordinary and dice.random() < 0.998 else alive
                rounds = [s for s in alive if s[0] == Phase.JUDGING]
                state = dice.choice(rounds if rounds and eager else alive)

    def found(self) -> Iterator[tuple[str, set[str]]]:
        """The rules that fired, and where."""
        for place, counts in self.fired.items():
            for branch, count in zip(self.search.next.branches, counts, strict=True):
                if count:
                    yield branch.rule.id, {place}
        if self.search.atomic is not None:
            for rule in self.search.atomic.fired:
                yield rule, {Phase.NAMES[Phase.JUDGING]}


def main() -> None:
    request = json.load(sys.stdin)
    json.dump([passages(Policy.model_validate(policy)) for policy in request["policies"]], sys.stdout)


if __name__ == "__main__":
    main()
