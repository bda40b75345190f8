"""What the generated ``step`` says of a run's last two turns: the final call of a counted limit, and the answer.

They come once in every run, so they are printed too where nothing else has a say in them. A final call whose text
holds numbers, or that comes while amounts or thresholds are watched, goes to the handlers.
"""

from __future__ import annotations

from engine.core.core import Core
from engine.core.machine.expr import FALSE, Expr, assume, to_python
from engine.core.machine.machine import Phase, Rule
from engine.core.machine.to_python import live, packed
from engine.core.policy import Finalize
from engine.core.state import Book, Run
from engine.core.vocabulary import DEFAULT_INSTRUCTION

_NUMBERS = ("{used}", "{limit}", "{left}")


def granted(core: Core, rules: list[Rule]) -> list[Rule]:
    """Those of the rules for a call that grant a final one whose record is the same in every run."""
    if core.amounts.limits or core.has_thresholds:
        return []
    return [rule for rule in rules if rule.effect.kind == "final" and _fixed_text(core, rule)]


def _fixed_text(core: Core, rule: Rule) -> bool:
    plan = core.plans[rule.effect.limit] if rule.effect.limit >= 0 else None
    if plan is None or plan.step is not None or not isinstance(plan.steps[0], Finalize):
        return False
    template = plan.steps[0].text or DEFAULT_INSTRUCTION
    return not any(number in template for number in _NUMBERS)


def final_call(core: Core, rule: Rule, guard: Expr, updates: list[str], attempt_end: str) -> str:
    """The branch for one of them."""
    plan = core.plans[rule.effect.limit]
    (occasion,) = (o for o in core.occasions if o.plan is plan)
    text = core.instruction(occasion, core.machine.initial, Book(Run("", 0)), 0)
    said = f"True, {core.final_tools!r}, {text!r}, '', (), {plan.resource!r}"
    lines = [
        *updates,
        "n, client, bound = state.n + 1, event.client, event.max_output",
        f"deadline = {attempt_end}",
        "admitted = CallState(id, 1, client, event.model, event.input_tokens, bound, None, earlier)",
        f"decision = Call(n, id, 1, client, deadline, {rule.origin!r}, (), bound, {said})",
        f"return State({packed(core.machine)}, at, n, admitted, (), book), decision",
    ]
    return f"if {to_python(guard)}:  # {rule.origin}\n" + "\n".join(f"    {line}" for line in lines)


def answered(core: Core) -> list[Rule]:
    """The rules for an answer that ends a call in hand."""
    calling = {"phase": Phase.CALLING}
    return [rule for rule in live(core.machine.rules["answered"]) if assume(rule.guard, calling) != FALSE]


def answer(core: Core) -> str:
    """The branch for a reply without tools; empty where a threshold may be crossed by it."""
    rules = answered(core)
    if core.has_thresholds or [rule.effect.word for rule in rules] != ["finalized", "completed"]:
        return ""
    final = rules[0]
    lines = [
        "if not calls:",
        "    if not event.text or event.finish == 'pause':",
        "        return general(state, event)",
        f"    rule = FINALIZED if {to_python(final.guard)} else COMPLETED",
        "    phase = ENDED",
        "    charged_for = state if usage is None else State(state.vars, at, state.n, call, (), book)",
        f"    return end(charged_for, at, {packed(core.machine)}, rule, ref=event.ref)",
    ]
    return "\n".join(lines)
