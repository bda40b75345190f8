"""Verdicts that do not depend on the numbers of a policy: its laws, and the end of every run, for all limits at once.

The search through all of them only suspects. A suspicion becomes a refutation when the exact search finds a run at
some small limits; else it is said that it is not known.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from engine.core.machine.laws import laws_of
from engine.core.policy import Policy
from engine.core.step import Compiled, compile
from engine.verify.prove import FREE, Progress, Prover, silent
from engine.verify.saturated import Saturation, saturate
from engine.verify.small_numbers import nearby
from engine.verify.verdicts import LAWS, Budget, Effort, Verdict
from engine.verify.world import World, around

_ENDING = World(ancestors=False, clients=True, pauses=False)
"""A run of its own, as for its length."""

_CALLS = ("call", "final", "fallback")


def for_all_limits(
    policy: Policy,
    budget: Budget,
    *,
    compiling: Callable[[Policy], Compiled] = compile,
    progress: Progress = silent,
) -> tuple[Verdict, ...]:
    """A verdict about each law of a run of this policy, and one about its end."""
    return _AllLimits(policy, budget, compiling, progress).verdicts()


class _AllLimits:
    def __init__(
        self, policy: Policy, budget: Budget, compiling: Callable[[Policy], Compiled], progress: Progress
    ) -> None:
        self.policy, self.budget, self.compiling, self.progress = policy, budget, compiling, progress
        self.until = time.perf_counter() + budget.seconds

    def verdicts(self) -> tuple[Verdict, ...]:
        self.progress("laws, for all limits", 0, 0)
        found = self._saturated(FREE)
        effort = Effort(found.states, found.transitions, seconds=found.seconds)
        names = [law for law in LAWS if any(check.law == law for check in laws_of(self.policy).checks)]
        laws = [self._law(law, found, Verdict("law", law, "proved", LAWS[law], effort=effort)) for law in names]
        return tuple(replace(verdict, limits="all") for verdict in (*laws, self._end()))

    def _saturated(self, world: World) -> Saturation:
        return saturate(
            self.policy,
            made=lambda policy: around(self.compiling(policy).machine, policy, world),
            max_states=self.budget.states,
            max_seconds=self._seconds(),
        )

    def _law(self, law: str, found: Saturation, proved: Verdict) -> Verdict:
        words = next((words for name, words in found.suspected if name == law), "")
        if not words:
            return replace(proved, result="unknown", why=found.cut) if found.cut else proved
        return self._refuted(law) or replace(
            proved, result="unknown", why=f"it may be that {words}, but no run that shows it was found"
        )

    def _refuted(self, law: str) -> Verdict | None:
        """The law broken by a run at some small limits."""
        for policy in nearby(self.policy):
            budget = replace(self.budget, seconds=self._seconds())
            compiled = self.compiling(policy)
            proof = Prover(policy, budget, compiled=compiled, progress=self.progress).prove((), laws=True)
            for verdict in proof.verdicts:
                if verdict.name == law and verdict.result == "refuted":
                    return replace(verdict, why=f"{verdict.why}, with {_numbers(policy)}")
        return None

    def _end(self) -> Verdict:
        self.progress("the end, for all limits", 0, 0)
        found = self._saturated(_ENDING)
        effort = Effort(found.states, found.transitions, seconds=found.seconds)
        about = Verdict("end", "end", "proved", "every run ends", effort=effort)
        if found.circle is None:
            why = found.cut or "there are too many transitions to look for a circle among them"
            return replace(about, result="unknown", why=why)
        if found.circle:
            rules = ", ".join(dict.fromkeys(rule.id for rule in found.circle))
            line = "llm_calls" if any(rule.effect.kind in _CALLS for rule in found.circle) else "llm_attempts"
            why = f"nothing that is counted bounds how often this repeats: {rules}; a limit of `{line}` would"
            return replace(about, result="unknown", why=why)
        return about

    def _seconds(self) -> float:
        return max(0.0, self.until - time.perf_counter())


def _numbers(policy: Policy) -> str:
    return ", ".join(f"{limit.id} {limit.max}" for limit in policy.limits if limit.max is not None)
