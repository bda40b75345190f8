"""Verdicts that do not depend on the numbers of a policy: laws, the end of every run, and claims that name no limit's.

The search through all of them only suspects. Of a law, a suspicion becomes a refutation when the exact search finds a
run at some small limits; else it is said that it is not known. A claim that holds at the policy's own numbers may well
be false at others: of claims, only what is proved is told.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from engine.core.claims import Always, Claim, Compare, Within
from engine.core.machine.claim_laws import Promise, promises_of
from engine.core.machine.laws import Laws, laws_of
from engine.core.machine.machine import Machine
from engine.core.machine.plan import plans_of
from engine.core.machine.run_laws import RUN_GHOSTS
from engine.core.policy import Policy
from engine.core.step import Compiled, compile
from engine.verify.prove import FREE, Progress, Prover, silent
from engine.verify.saturated import Saturation, saturate
from engine.verify.saying import said
from engine.verify.small_numbers import nearby
from engine.verify.spending import spending
from engine.verify.verdicts import LAWS, Budget, Effort, Verdict
from engine.verify.world import World, around

_ENDING = World(ancestors=False, clients=True, pauses=False)
"""A run of its own, as for its length."""

_ADMITTED = ("llm_calls", "llm_attempts", "tool_iterations")
"""What law L1 is about."""

_CALLS = ("call", "final", "fallback")


def for_all_limits(
    policy: Policy,
    budget: Budget,
    *,
    laws: bool = True,
    claims: Sequence[Claim] = (),
    compiling: Callable[[Policy], Compiled] = compile,
    progress: Progress = silent,
) -> tuple[Verdict, ...]:
    """A verdict about each law of a run of this policy, one about its end, and one about each claim that is proved."""
    every = _AllLimits(policy, budget, compiling, progress)
    return (*(every.verdicts() if laws else ()), *every.claims(claims))


class _AllLimits:
    def __init__(
        self, policy: Policy, budget: Budget, compiling: Callable[[Policy], Compiled], progress: Progress
    ) -> None:
        self.policy, self.budget, self.compiling, self.progress = policy, budget, compiling, progress
        self.until = time.perf_counter() + budget.seconds
        self.proved: set[str] = set()
        """Laws that hold for all limits."""

    def verdicts(self) -> tuple[Verdict, ...]:
        self.progress("laws, for all limits", 0, 0)
        found = self._saturated(FREE)
        effort = Effort(found.states, found.transitions, seconds=found.seconds)
        names = [law for law in LAWS if any(check.law == law for check in laws_of(self.policy).checks)]
        laws = [self._law(law, found, Verdict("law", law, "proved", LAWS[law], effort=effort)) for law in names]
        self.proved = {verdict.name for verdict in laws if verdict.result == "proved"}
        return tuple(replace(verdict, limits="all") for verdict in (*laws, self._end()))

    def claims(self, claims: Sequence[Claim]) -> Iterator[Verdict]:
        """Those of the claims that are so whatever the limits are."""
        for claim in claims:
            if self._seconds() <= 0:
                return
            about = Verdict("claim", claim.name, "proved", said(claim), origin=claim.origin, limits="all")
            if line := self._granted(claim):
                yield replace(about, why=f"law L1 holds for all limits, and `{line}` grants no more", limits="these")
                continue
            self.progress(f"{claim.name}, for all limits", 0, 0)
            found = self._watching(claim)
            if found.proved:
                yield replace(about, effort=Effort(found.states, found.transitions, seconds=found.seconds))

    def _granted(self, claim: Claim) -> str:
        """The limit that says by itself what is claimed, where the law about it holds; empty if none does."""
        says = claim.says
        if "L1" not in self.proved or not isinstance(says, Always) or says.implies is not None:
            return ""
        if says.claim.join == "and" and len(says.claim.facts) > 1:
            return ""
        bounds = [fact for fact in says.claim.facts if isinstance(fact, Compare) and fact.op in ("<=", "<")]
        for fact, plan in itertools.product(bounds, plans_of(self.policy)):
            most = plan.utmost() + (fact.op == "<")
            if plan.resource == fact.resource in _ADMITTED and fact.amount is not None and most <= fact.amount:
                return f"{plan.limit.id} {plan.maximum}"
        return ""

    def _watching(self, claim: Claim) -> Saturation:
        def promise(small: Policy) -> Promise:
            return promises_of(small, [claim])[0]

        def made(small: Policy) -> Machine:
            world = World(clients=True, pauses=not isinstance(claim.says, Within))
            spends = spending(self.compiling(small).machine, promise(small).amounts, small)
            return around(spends, small, world)

        def watched(small: Policy) -> Laws:
            laws = promise(small).explored
            known = {ghost.name for ghost in laws.ghosts}
            rounds = (g for g in RUN_GHOSTS if g.name in ("running", "with_people") and g.name not in known)
            return replace(laws, ghosts=(*laws.ghosts, *rounds))

        seconds = self._seconds()
        return saturate(
            self.policy, made=made, watched=watched, max_states=self.budget.states, max_seconds=seconds, ends=False
        )

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
