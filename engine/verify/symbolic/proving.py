"""All that is proved for all numbers about one policy: its laws, what it promises of amounts, and its tree's ledger."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.core.machine.build import build
from engine.core.machine.machine import Machine
from engine.core.policy import Policy
from engine.verify.prove import Progress, silent
from engine.verify.symbolic import ledger
from engine.verify.symbolic.amounts import PROMISES, Answer, ask_about_amounts
from engine.verify.symbolic.laws import LawsProof, laws_for_all_numbers
from engine.verify.symbolic.ledger import Kept, ask_about_the_ledger
from engine.verify.symbolic.playing import play, reaching
from engine.verify.verdicts import Budget, Result, Verdict

ASSUMED = (
    "numbers of tokens, money and time are whole and not negative; a reserve is less than its limit",
    "prices are those of the policy; laws are about a run among others, and rounds of any size",
)

_REPLY = 1_000
"""What a reply takes in the run that shows how far a limit can be passed."""


@dataclass(frozen=True, slots=True)
class Promised:
    """A promise about amounts. ``about``: the limit, or what else it is about; ``shown``: a refutation, or
    that a bound is reached, as played."""

    name: str
    about: str
    result: Result
    says: str
    why: str = ""
    shown: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class SymbolicProof:
    """About the policy, or about one agent (``agent``)."""

    agent: str
    laws: LawsProof
    promised: tuple[Promised, ...]
    seconds: float

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self.laws.verdicts

    @property
    def results(self) -> list[Result]:
        return [*(v.result for v in self.laws.verdicts), *(p.result for p in self.promised)]

    @property
    def proved(self) -> bool:
        return all(result == "proved" for result in self.results)


def prove_for_all_numbers(
    policy: Policy,
    budget: Budget,
    *,
    agent: str = "",
    made: Callable[[Policy], Machine] = build,
    progress: Progress = silent,
) -> SymbolicProof:
    """Verdicts about laws and amounts. Raises ``NoSolver``."""
    began = time.perf_counter()
    progress("amounts, for all numbers", 0, 0)
    promised = promises(policy, began + budget.seconds, made, tree=not agent)
    left = replace(budget, seconds=max(0.0, began + budget.seconds - time.perf_counter()))
    laws = laws_for_all_numbers(policy, left, made=made, progress=progress)
    return SymbolicProof(agent, laws, promised, time.perf_counter() - began)


def promises(
    policy: Policy, until: float, made: Callable[[Policy], Machine] = build, *, tree: bool = True
) -> tuple[Promised, ...]:
    """What is promised about amounts, and, with ``tree``, about the ledger of one. Raises ``NoSolver``."""
    promised = [_promised(policy, answer) for answer in ask_about_amounts(policy, until, made)]
    shares = any(limit.scope == "subtree" for limit in policy.limits)
    if tree and (policy.agents is not None or policy.agent or shares):
        promised += [_kept(kept) for kept in ask_about_the_ledger(until)]
    return tuple(promised)


def _kept(kept: Kept) -> Promised:
    result: Result = "refuted" if kept.shown else "unknown" if kept.why else "proved"
    return Promised(kept.promise, "the ledger", result, ledger.PROMISES[kept.promise], kept.why, kept.shown)


def _promised(policy: Policy, answer: Answer) -> Promised:
    about = answer.plan.limit.id if answer.plan else "usage"
    origin = answer.plan.origin if answer.plan else ""
    verdict = Promised(answer.promise, about, "proved", PROMISES[answer.promise], origin=origin)
    if answer.why:
        return replace(verdict, result="unknown", why=answer.why)
    if not answer.refuted:
        if answer.promise == "overshoot" and answer.plan is not None:
            reached = reaching(policy, answer.plan, answer.plan.maximum, _REPLY)
            why = "" if reached.broken else f"no run that reaches it was found: {reached.words}"
            return replace(verdict, result="proved" if reached.broken else "unknown", why=why, shown=reached.words)
        return verdict
    shown = play(policy, answer)
    if shown.broken:
        return replace(verdict, result="refuted", shown=shown.words)
    why = f"numbers were found that would break it, but `step` does otherwise: {shown.words}"
    return replace(verdict, result="unknown", why=why)
