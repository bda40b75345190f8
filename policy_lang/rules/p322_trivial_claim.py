"""claim that says nothing

A claim is to be something that could fail. That a counter is never below zero holds for every policy, and so does
that there is at most one final call; a claim with a premise that cannot be is true of everything.

Why: the claim looks as if it protected something, and no change of the policy can ever break it.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls  20
    }
    verify "never negative"  always llm_calls >= 0

Good:

    policy "chat" lang 1
    limits {
      llm_calls  20
    }
    verify "hard ceiling"  always llm_calls <= 20

Fix: none; what was meant is yours to say.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.quantities import Quantity, parse
from policy_lang.report import Report
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for statement in policy.statements:
        if isinstance(statement, tree.Verify) and (why := _trivial(statement.claim)):
            report.warn(
                "P322",
                "this claim is true of every policy",
                statement.claim.span,
                why,
                help="claim what a change of the policy could break, or remove it",
            )


def _trivial(claim: tree.Act) -> str:
    """Why a claim can never fail; empty if it may."""
    if claim.kind == "at_most":
        word = claim.parts[1]
        many = _number(claim.parts[0])
        if isinstance(word, tree.Name) and word.text == "finalize" and many is not None and many > 1:
            return "a run has one final call at most"
    if claim.kind != "always":
        return ""
    premise, conclusion = claim.parts[0], claim.parts[1] if len(claim.parts) > 1 else None
    if conclusion is None:
        return "it can be nothing else" if _always(premise) else ""
    if _never(premise):
        return "its premise is never true"
    return "what it implies is true in any case" if _always(conclusion) else ""


def _always(fact: object) -> bool:
    """Is a fact true whatever happens?"""
    if not isinstance(fact, tree.Act):
        return False
    if fact.kind == "all_of":
        return all(_always(part) for part in fact.parts)
    if fact.kind == "any_of":
        return any(_always(part) for part in fact.parts)
    return fact.kind == "compare" and _sign(fact) == ">=" and _number(fact.parts[-1]) == 0


def _never(fact: object) -> bool:
    if not isinstance(fact, tree.Act):
        return False
    if fact.kind == "all_of":
        return any(_never(part) for part in fact.parts)
    if fact.kind == "any_of":
        return all(_never(part) for part in fact.parts)
    return fact.kind == "compare" and _sign(fact) == "<" and _number(fact.parts[-1]) == 0


def _sign(fact: tree.Act) -> str:
    sign = fact.parts[1]
    return sign.text if isinstance(sign, tree.Name) else ""


def _number(value: object) -> int | None:
    found = parse(value.text) if isinstance(value, tree.Number) else None
    return found.value if isinstance(found, Quantity) else None
