"""Claims in the language's words, from their data."""

from __future__ import annotations

from engine.core.claims import Always, AtMost, Claim, Compare, Fact, Facts, LastIs, Never, Within
from engine.core.texts import quantity
from engine.core.vocabulary import RESOURCES


def said(claim: Claim) -> str:
    """``always llm_calls <= 20``."""
    match claim.says:
        case Always(claim=facts, implies=implies):
            return f"always {_facts(facts)}" + (f" implies {_facts(implies)}" if implies else "")
        case AtMost(n=n, word=word):
            return f"at_most {n} {word}"
        case Never(deed=deed, after=after):
            return f"never {deed} after {after}"
        case Within(n=n):
            return f"within {n} steps ended"


def _facts(facts: Facts) -> str:
    return f" {facts.join} ".join(_fact(fact) for fact in facts.facts)


def _fact(fact: Fact) -> str:
    if isinstance(fact, Compare):
        unit = RESOURCES[fact.resource].unit if fact.resource in RESOURCES else "count"
        amount = "unlimited" if fact.amount is None else quantity(unit, fact.amount)
        return f"{fact.resource} {fact.op} {amount}"
    named, word = ("last", fact.decision) if isinstance(fact, LastIs) else ("phase", fact.phase)
    return f"{named} is {'not ' if fact.negated else ''}{word}"
