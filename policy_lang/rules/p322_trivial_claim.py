"""claim that says nothing

A claim is to be something that could fail. That a counter is never below zero holds for every policy, and so does
that there is at most one final call. A claim with a premise that cannot be is true of everything, as is one that
concludes no more than its premise says.

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

from typing import Any

from engine.core.vocabulary import DECISIONS, PHASES
from policy_lang.report import Report
from policy_lang.rules.subject import Subject

_Fact = dict[str, Any]
"""A fact, in the shape of the policy's JSON."""

_OPPOSITE = {"<=": ">", ">": "<=", ">=": "<", "<": ">=", "=": "!=", "!=": "="}


def check(policy: Subject, report: Report) -> None:
    for claim in policy.resolved.claims:
        if why := _trivial(claim.data["says"]):
            report.warn(
                "P322",
                "this claim is true of every policy",
                claim.span,
                why,
                help="claim what a change of the policy could break, or remove it",
            )


def _trivial(said: dict[str, Any]) -> str:
    """Why a claim can never fail; empty if it may."""
    if said["kind"] == "at_most" and said["word"] == "finalize" and said["n"] > 1:
        return "a run has one final call at most"
    if said["kind"] != "always":
        return ""
    premise = [[]] if said["implies"] is None else _cases(said["claim"])
    broken = _cases(_negated(said["implies"] or said["claim"]))
    if not all(_contradict([*one, *other]) for one in premise for other in broken):
        return ""
    if said["implies"] is None:
        return "it can be nothing else"
    if all(map(_contradict, premise)):
        return "its premise is never true"
    return "what it implies is true in any case" if all(map(_contradict, broken)) else "its premise says so already"


def _cases(facts: dict[str, Any]) -> list[list[_Fact]]:
    """The ways in which it can be so: in each, all of the facts hold together."""
    found: list[_Fact] = facts["facts"]
    return [[fact] for fact in found] if facts["join"] == "or" else [found]


def _negated(facts: dict[str, Any]) -> dict[str, Any]:
    join = "or" if facts["join"] == "and" else "and"
    return {"join": join, "facts": [_opposite(fact) for fact in facts["facts"]]}


def _opposite(fact: _Fact) -> _Fact:
    if fact["fact"] == "compare":
        return {**fact, "op": _OPPOSITE[fact["op"]]}
    return {**fact, "negated": not fact["negated"]}


def _contradict(facts: list[_Fact]) -> bool:
    """Can these not all be so at once? Facts about different things never disturb one another."""
    subjects: dict[str, list[_Fact]] = {}
    for fact in facts:
        subjects.setdefault(str(fact.get("resource", fact["fact"])), []).append(fact)
    return any(not any(all(_holds(f, x) for f in about) for x in _possible(about)) for about in subjects.values())


def _possible(facts: list[_Fact]) -> set[Any]:
    """All that their subject may be, as far as these facts can tell it apart."""
    kind = facts[0]["fact"]
    if kind != "compare":
        return set(PHASES if kind == "phase" else DECISIONS)
    amounts = [fact["amount"] for fact in facts if fact["amount"] is not None]
    return {0, *(near for amount in amounts for near in (amount - 1, amount, amount + 1) if near >= 0)}


def _holds(fact: _Fact, value: Any) -> bool:
    if fact["fact"] != "compare":
        return bool((value == fact.get("phase", fact.get("decision"))) != fact["negated"])
    amount = fact["amount"]
    if amount is None:  # what a host has set to `unlimited` may be a number another time
        return True
    more, less = value > amount, value < amount
    held: dict[str, bool] = {
        "<=": not more,
        "<": less,
        ">=": not less,
        ">": more,
        "=": not (more or less),
        "!=": more or less,
    }
    return held[fact["op"]]
