"""The rules about a person who is asked whether a limit may grow (semantics, section 6), once the run is suspended.

``rules.questions`` says when it is; here are the answers, and what a round does that would not fit.
"""

from __future__ import annotations

from engine.core.machine.expr import TRUE, Eq, Expr, Field, Le, Lit, Not, Var, all_of, any_of
from engine.core.machine.machine import Effect, FieldDef, Grant, Phase, Rule, Set, Sort, Spend, Variable
from engine.core.machine.plan import Plan
from engine.core.machine.rules import Context, Updates, asking, extensions, questions, rule, to

IN_ROUNDS = ("tool_iterations", "tool_calls", "unknown_tools")
"""Limits about which is asked when a reply is there; all others are looked at before a call or an attempt."""


def variables(c: Context) -> list[Variable]:
    """What the machine remembers of questions: none where no ladder asks."""
    out: list[Variable] = []
    for plan in c.plans:
        asked = plan.question()
        if asked is None:
            continue
        if not out:
            out.append(Variable("asking", Sort.FLAG, 0, "the limit a person is asked about", 2 * len(c.plans) + 1))
        if plan.asks_left:
            doc = f"how often a person may still be asked for more {plan.limit.id}"
            out.append(Variable(plan.asks_left, Sort.FUEL, asked[1].times, doc))
        out.append(Variable(plan.granted, Sort.METER, 0, f"what people have granted of {plan.limit.id}"))
    return out


def answer_fields(c: Context) -> tuple[FieldDef, ...]:
    """What a person says: of amounts only whether they grant more, for what is left of them is no variable."""
    most = max((plan.up_to() for plan in c.plans if plan.counted), default=0)
    amounts = range(most + 2) if most else (0,)
    return (FieldDef("granted", (0, 1), "they grant it"), FieldDef("amount", amounts, "how much, 0 for all of it"))


def extension(c: Context) -> tuple[Rule, ...]:
    """A person has answered: the limit grows by what they grant, at most by what was asked for, or not at all."""
    rules: list[Rule] = []
    for plan in c.plans:
        if plan.question() is None:
            continue
        if plan.resource in IN_ROUNDS:
            rules += _answers(c, plan, Phase.CALLING)
        else:
            rules += _answers(c, plan, Phase.READY)
            rules += _answers(c, plan, Phase.WAITING, again=True)
    rules.append(Rule("extension.other", TRUE, to(Phase.READY), Effect("again"), "default: ask"))
    return tuple(rules)


def _answers(c: Context, plan: Plan, back: int, *, again: bool = False) -> list[Rule]:
    """Grants as the step allows them, and one that was meant larger; the last one moves the ladder on, as a refusal."""
    asked = plan.question()
    assert asked is not None
    assert plan.step is not None
    name = "extension.again" if again else "extension"
    waits = all_of(Eq(Var("asking"), Lit(asking(c, plan, again=again))), plan.at(asked[0]))
    granted = all_of(waits, Eq(Field("granted"), Lit(1)))
    settle, on = to(back, Set("asking", 0)), Set(plan.step, asked[0] + 1)
    amount, most = Field("amount"), plan.up_to()
    # Nothing said is all that was asked for, and more than that is cut to it.
    all_of_it = any_of(Le(amount, Lit(0)), Not(Le(amount, Lit(most))))
    rules: list[Rule] = []
    for word, size, by in (("all", all_of_it, most), ("part", TRUE, amount)):
        grants: Updates = (Grant(plan.granted, by), *((Grant(plan.fuel, by),) if plan.counted else ()))
        if plan.asks_left:
            left = Not(Le(Var(plan.asks_left), Lit(1)))
            updates = (*settle, *grants, Spend(plan.asks_left))
            rules.append(rule(f"{name}.{word}", plan, all_of(granted, size, left), updates, "again", word))
        rules.append(rule(f"{name}.last_{word}", plan, all_of(granted, size), (*settle, *grants, on), "again", word))
    rules.append(rule(f"{name}.refused", plan, waits, (*settle, on), "again", "ungranted"))
    return rules


def judged_limits(c: Context) -> list[Plan]:
    """Limits about which a person is asked when a call of a round does not fit them."""
    return [p for p in c.plans if p.resource in ("tool_calls", "unknown_tools") and p.question() is not None]


def crowded_field(c: Context) -> FieldDef:
    """The field that says about which limit a person is asked where a round does not fit whole."""
    codes = (0, *(plan.index + 1 for plan in judged_limits(c)))
    return FieldDef(
        "crowded", codes, "1 + the limit that a call of the round does not fit, and a person is asked about"
    )


def unasked_field(c: Context) -> FieldDef:
    return FieldDef("unasked", (0, 1) if judged_limits(c) else (0,), "nobody can be asked about a limit in its midst")


def crowded(c: Context) -> list[Rule]:
    """A call of the round would not fit, as ``step`` has found by judging it beforehand: a person is asked first."""
    rules: list[Rule] = []
    for plan in judged_limits(c):
        here = Eq(Field("crowded"), Lit(plan.index + 1))
        # What the judging took before it came to the question is taken now, for that was given up.
        rules += [*extensions("round", plan, here), *questions(c, "round", plan, here)]
    return rules


def passed_by(plan: Plan, refused: Expr) -> list[Rule]:
    """A whole round is refused although nobody could be asked: the question is passed by."""
    asked = plan.question()
    if asked is None or plan.step is None:
        return []
    here, on = all_of(refused, plan.at(asked[0])), (Set(plan.step, asked[0] + 1),)
    return [rule("tool.passed_question", plan, here, on, "again", "ungranted")]


def would_crowd(plan: Plan, exhausted: Expr) -> list[Rule]:
    """A call does not fit a limit about which a person is asked: the judging is given up, or nobody can be asked."""
    asked = plan.question()
    if asked is None or plan.step is None:
        return []
    here = all_of(exhausted, plan.at(asked[0]))
    unasked = all_of(here, Eq(Field("unasked"), Lit(1)))
    return [
        rule("tool.unasked", plan, unasked, (Set(plan.step, asked[0] + 1),), "again", "ungranted"),
        rule("tool.question", plan, here, (), "suspend", "ask"),
    ]


def hosted(plan: Plan, spend: Updates) -> list[Rule]:
    """Nobody is asked about what a provider has done already: they are when something would not fit."""
    asked = plan.question()
    here = all_of(plan.exhausted(), plan.at(asked[0])) if asked else any_of()
    return [rule("hosted.unasked", plan, here, spend, "wait", "hosted")] if asked else []
