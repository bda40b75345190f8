"""How much of its policy a suite has seen: which of the policy's own rules decided something, of those that a run can
come to at all, and what its runs were like.

``SUITE`` collects for a whole test session, once it is switched on (the pytest plugin does); what plays or judges runs
tells it of each. Off, it costs nothing. What is reachable is found by exploration, once for each policy.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Policy
from engine.testing.witnesses import Explored, explore, fired


class Runs(Struct):
    """What was seen of one policy: rules that fired, and of each run how many model calls it has made.

    ``early`` counts runs that ended with their first call, which test little.
    """

    policy: str
    fired: set[str] = field(default_factory=set)
    turns: list[int] = field(default_factory=list)
    early: int = 0


class Covered(Struct, frozen=True):
    """One policy: ``covered`` of its reachable rules, the ``missing`` ones with the line of each, and its runs."""

    policy: str
    covered: tuple[str, ...]
    missing: Mapping[str, str]
    runs: int
    turns: tuple[int, float, int]
    early: int
    cut: str = ""

    @property
    def share(self) -> float:
        """Between 0 and 1; 1 where nothing of the policy's own can be reached."""
        every = len(self.covered) + len(self.missing)
        return len(self.covered) / every if every else 1.0

    def lines(self) -> list[str]:
        """All in words."""
        every = len(self.covered) + len(self.missing)
        least, middle, most = self.turns
        early = f"{100 * self.early / self.runs:.0f}% ended with their first call" if self.runs else ""
        out = [f"{self.policy}: {len(self.covered)} of {every} reachable rules ({100 * self.share:.0f}%)"]
        if self.runs:
            calls = f"model calls of a run: {least} to {most}, half of them {middle:g} or fewer"
            out.append(f"  {self.runs} runs; {calls}; {early}")
        out += [f"  never decided: {rule}  [{line}]" for rule, line in self.missing.items()]
        return [*out, f"  the search for what is reachable is not whole: {self.cut}"] if self.cut else out


class Coverage:
    """Runs of any number of policies, by fingerprint."""

    def __init__(self, *, on: bool = True) -> None:
        self.on = on
        self.seen: dict[str, Runs] = {}

    def see(self, policy: Policy, steps: Iterable[tuple[e.AnyEvent, d.AnyDecision]]) -> None:
        """One run, or as much of it as there is."""
        if not self.on:
            return
        pairs = list(steps)
        runs = self.seen.setdefault(policy.fingerprint(), Runs(policy.model_dump_json()))
        runs.fired |= fired(policy, [event for event, _ in pairs])
        calls = sum(isinstance(decision, d.Call) and decision.attempt == 1 for _, decision in pairs)
        runs.turns.append(calls)
        runs.early += calls <= 1 and any(isinstance(decision, d.End) for _, decision in pairs)

    def results(self) -> list[Covered]:
        """Each policy, in the order in which they were seen first."""
        return [_covered(runs) for runs in self.seen.values()]

    def told(self) -> list[dict[str, Any]]:
        """What was seen as plain data, for another process."""
        return [
            {"policy": r.policy, "fired": sorted(r.fired), "turns": r.turns, "early": r.early}
            for r in self.seen.values()
        ]

    def add(self, told: Sequence[Mapping[str, Any]]) -> None:
        """What another process has seen."""
        for one in told:
            policy = Policy.model_validate_json(one["policy"])
            runs = self.seen.setdefault(policy.fingerprint(), Runs(one["policy"]))
            runs.fired |= set(one["fired"])
            runs.turns += one["turns"]
            runs.early += one["early"]


def _covered(runs: Runs) -> Covered:
    policy = Policy.model_validate_json(runs.policy)
    found: Explored = explore(policy)
    wanted = [rule for rule in found.rules if rule in found.reachable]
    missing = {rule: found.rules[rule] for rule in wanted if rule not in runs.fired}
    turns = sorted(runs.turns)
    shape = (turns[0], statistics.median(turns), turns[-1]) if turns else (0, 0.0, 0)
    covered = tuple(rule for rule in wanted if rule not in missing)
    return Covered(policy.name, covered, missing, len(turns), shape, runs.early, found.cut)


SUITE = Coverage(on=False)
"""Of the test session that goes on."""
