"""A machine in which what ``step`` does in one go is not interrupted.

Where a rule says to look again, ``step`` goes on with the same event at once. A search that lets anything come in
between misses nothing by that, but finds runs that never happen. For searches only.
"""

from __future__ import annotations

from dataclasses import replace

from engine.core.machine.expr import Eq, Lit, Var, any_of
from engine.core.machine.machine import Machine, Phase, Rule, Set, Sort, Variable

_NEXT = "looked_at_again"

_BACK = {Phase.CALLING: "round", Phase.READY: "call", Phase.WAITING: "attempt"}
"""What has waited for a person's answer, by where the run goes back to."""


def composed(machine: Machine) -> Machine:
    """The machine, which remembers the event that has to be looked at again until it was."""
    code = {name: number for number, name in enumerate(machine.events, 1)}
    due = Var(_NEXT)
    events = {
        name: replace(kind, when=any_of(Eq(due, Lit(0)), Eq(due, Lit(code[name]))))
        for name, kind in machine.events.items()
    }

    def told(event: str, rule: Rule) -> Rule:
        return replace(rule, updates=(*rule.updates, Set(_NEXT, code.get(_follows(event, rule), 0))))

    rules = {event: tuple(told(event, rule) for rule in known) for event, known in machine.rules.items()}
    variable = Variable(_NEXT, Sort.FLAG, 0, "the event that is looked at again", len(code) + 1)
    return replace(machine, variables=(*machine.variables, variable), events=events, rules=rules)


def _follows(event: str, rule: Rule) -> str:
    """The event that ``step`` goes on with after this rule; empty if it answers, or if phases see to it."""
    if rule.effect.kind == "fallback":
        return "call"
    if rule.effect.kind != "again":
        return ""
    if event in ("call", "attempt", "round", "tool", "hosted"):
        return event
    if event == "withheld":
        return "tool_end"
    if event == "resolved":
        return "" if rule.effect.ladder else "call"
    if event == "extension":
        return next((_BACK[u.to] for u in rule.updates if isinstance(u, Set) and u.var == "phase"), "")
    return ""
