"""The rules about rounds and tool calls (semantics, section 4)."""

from __future__ import annotations

from engine.core.machine import asking_rules
from engine.core.machine.expr import TRUE, And, Eq, Expr, Field, Le, Lit, Not, Var, all_of
from engine.core.machine.failure_plan import Occasion, breaker_origin
from engine.core.machine.machine import Count, Effect, Grant, Phase, Rule, Set, Spend, Update
from engine.core.machine.plan import Plan
from engine.core.machine.rules import (
    NOT_FINAL,
    Context,
    Updates,
    extensions,
    late,
    meter,
    questions,
    refused_above,
    rule,
    to,
)
from engine.core.policy import Breaker, Consult, Finalize


def hosted(c: Context) -> tuple[Rule, ...]:
    """The provider has executed a call by itself: too late to refuse, so it is counted, and what it exceeds marked."""
    pools = [p for p in c.plans if p.resource == "tool_calls"]
    spend: Updates = (*(Spend(p.fuel) for p in pools), Count(meter("tool_calls")))
    rules: list[Rule] = []
    for p in pools:
        rules += extensions("hosted", p, p.exhausted())
        rules += asking_rules.hosted(p, spend)
        rules.append(rule("hosted.over", p, p.exhausted(), (*spend, Set(p.over, 1)), "wait", "hosted"))
    return (*rules, Rule("hosted", TRUE, spend, Effect("wait"), "default: hosted"))


def handoff(c: Context) -> tuple[Rule, ...]:
    """The model hands the conversation over to another agent: no tool and no round, so nothing is counted."""
    end = to(Phase.ENDED)
    disobeyed = Effect("end", word="finalization_disobeyed")
    rules = [Rule("handoff.disobeyed", Not(NOT_FINAL), end, disobeyed, "default: finalization")]
    rules += late(c, "handoff")
    return (*rules, Rule("handoff", TRUE, to(Phase.READY), Effect("handoff"), "default: handoff"))


def round(c: Context) -> tuple[Rule, ...]:
    """The model asks for tools: admitted as a whole, answered as a whole, or the end."""
    end = to(Phase.ENDED)
    disobeyed = Effect("end", word="finalization_disobeyed")
    rules = [Rule("round.disobeyed", Not(NOT_FINAL), end, disobeyed, "default: finalization")]
    rules += late(c, "round")
    iterations = [p for p in c.plans if p.resource == "tool_iterations"]
    for plan in iterations:
        rules += extensions("round", plan, plan.exhausted())
        rules += questions(c, "round", plan, plan.exhausted())
        rules += _refusals(c, plan)
        rules.append(rule("round.spent", plan, plan.exhausted(), end, "end", "incomplete"))
    rules.append(refused_above("round", "rounds_above"))
    spend: Updates = (*(Spend(p.fuel) for p in iterations), Count(meter("tool_iterations")))
    admit = to(Phase.JUDGING, *spend)
    rules += asking_rules.crowded(c)
    rules.append(Rule("round.admit", TRUE, admit, Effect("round"), "default: round"))
    return tuple(rules)


def _refusals(c: Context, plan: Plan) -> list[Rule]:
    """The round does not fit, but its ladder goes on: its calls are answered, it is not counted.

    What follows is the final call, or the question to a consultant, as after a round that fitted in part. Only others
    of a tree can have used up a round while the ladder stands at ``consult``.
    """
    using = c.policy.finalization.using
    rules = []
    for position, step in plan.ladder():
        if isinstance(step, Finalize | Consult):
            guard, pending = all_of(plan.exhausted(), plan.at(position)), Set("pending", plan.index + 1)
            if using:
                ask = to(Phase.RESOLVING, pending, Set("asked", c.text_asked), Set("given", 0))
                rules.append(rule("round.resolve", plan, guard, ask, "resolve", "text", position))
            else:
                refuse = to(Phase.READY, pending)
                rules.append(rule("round.refuse", plan, guard, refuse, "refuse", "refused", position))
    return rules


def tool(c: Context) -> tuple[Rule, ...]:
    """One call of an admitted round; the order of these rules is the order in which verdicts exclude one another."""
    rules = _unknown_tools(c)
    rules += [_refused("invalid", "bad_arguments"), _refused("denied", "denied")]
    rules += _open_breakers(c)
    rules.append(_refused("limited", "tool_limit"))
    if keeps_time(c):
        rules.append(_refused("no_time", "no_time"))
    pools = [plan for plan in c.plans if plan.resource == "tool_calls"]
    rules += [refusal for plan in pools if plan.limit.atomic for refusal in _round_refused(plan)]
    for plan in pools:
        exhausted = plan.exhausted()
        rules += extensions("tool", plan, exhausted)
        rules += asking_rules.would_crowd(plan, exhausted)
        rules.append(rule("tool.spent", plan, exhausted, (Set(plan.over, 1),), "reply", "tool_calls"))
    rules.append(_refused("above", "above"))
    held: Updates = (Grant("open", 1), *(Spend(p.fuel) for p in pools))
    spend: Updates = (*held, Count(meter("tool_calls")))
    rules.append(Rule("tool.ask", Eq(Field("asks"), Lit(1)), held, Effect("ask"), "default: ask"))
    rules.append(Rule("tool.execute", TRUE, spend, Effect("execute"), "default: execute"))
    return tuple(rules)


def _round_refused(plan: Plan) -> list[Rule]:
    """The whole round does not fit: an extension that would not have been enough is passed by, not taken."""
    refused, extension = Eq(Field("round_refused"), Lit(plan.index + 1)), plan.extension()
    rules = []
    if extension is not None and plan.step is not None:
        here, on = all_of(refused, plan.at(extension[0])), (Set(plan.step, extension[0] + 1),)
        rules.append(rule("tool.passed", plan, here, on, "again", "passed"))
    rules += asking_rules.passed_by(plan, refused)
    return [*rules, rule("tool.round_refused", plan, refused, (Set(plan.over, 1),), "reply", "tool_calls")]


def keeps_time(c: Context) -> bool:
    """Is there time that only the final call may use, so that what a tool needs is over before the run's is?"""
    return any(plan.limit.reserve for plan in c.of_resource("wall"))


def may_not_start(c: Context) -> bool:
    """Can something come between the verdict that a call runs and its start?"""
    return keeps_time(c) or any(breaker.apply == "now" for breaker in c.breakers)


def _refused(field: str, word: str) -> Rule:
    return Rule(f"tool.{field}", Eq(Field(field), Lit(1)), (), Effect("reply", word=word), f"default: {word}")


def _open_breakers(c: Context) -> list[Rule]:
    """The call is skipped; a breaker that says so acts when the round is complete."""
    rules = []
    for index in ending_breakers(c):
        skip, origin = Effect("reply", word="breaker"), breaker_origin(c.breakers[index])
        guard = Eq(Field("broken"), Lit(index + 2))
        rules.append(Rule(f"tool.broken.{index + 1}", guard, (Set(broken_flag(index), 1),), skip, origin))
    if c.breakers:
        skipped = Not(Eq(Field("broken"), Lit(0)))
        rules.append(Rule("tool.broken", skipped, (), Effect("reply", word="breaker"), "default: breaker skip"))
    return rules


def ending_breakers(c: Context) -> list[int]:
    """The breakers that end a run, or lead to its final call, once a call was skipped."""
    return [index for index, breaker in enumerate(c.breakers) if ending(breaker)]


def ending(breaker: Breaker) -> bool:
    """Does a skipped call end the run, or lead to its final call?"""
    return breaker.when_open in ("stop", "finalize")


def broken_flag(index: int) -> str:
    """Flag: a call of this round was skipped by this breaker."""
    return f"breaker_{index + 1}_skipped"


def _broken(index: int) -> Expr:
    return Eq(Var(broken_flag(index)), Lit(1))


def granted(c: Context) -> tuple[Rule, ...]:
    """A person allowed the call: what was held for it is used now."""
    return (Rule("granted", TRUE, (Count(meter("tool_calls")),), Effect("execute"), "default: ask"),)


def withheld(c: Context) -> tuple[Rule, ...]:
    """Nobody allowed the call, or it may no longer start: what was held for it is given back."""
    back = tuple(Grant(p.fuel, 1) for p in c.plans if p.resource == "tool_calls")
    skipped = [
        Rule(f"withheld.broken.{index + 1}", here, (*back, skip), Effect("again"), origin)
        for index, here, skip, origin in _skipped(c)
    ]
    return (*skipped, Rule("withheld", TRUE, back, Effect("again"), "default: ask"))


def _skipped(c: Context) -> list[tuple[int, Expr, Update, str]]:
    """For each breaker that ends a run: that it skips the call, what is to be remembered of it, and its line."""
    return [
        (index, Eq(Field("broken"), Lit(index + 2)), Set(broken_flag(index), 1), breaker_origin(c.breakers[index]))
        for index in ending_breakers(c)
    ]


def _unknown_tools(c: Context) -> list[Rule]:
    unknown, count = Eq(Field("unknown"), Lit(1)), Count(meter("unknown_tools"))
    plans = [plan for plan in c.plans if plan.resource == "unknown_tools"]
    rules: list[Rule] = []
    for plan in plans:
        exhausted = And((unknown, plan.exhausted()))
        rules += extensions("tool", plan, exhausted)
        rules += asking_rules.would_crowd(plan, exhausted)
        # It does not fit this limit, but is one of those that the others count.
        others = tuple(Spend(other.fuel) for other in plans if other is not plan)
        updates: Updates = (Set(plan.over, 1), *others, count)
        rules.append(rule("tool.unknown_over", plan, exhausted, updates, "reply", "unknown_tool"))
    spend: Updates = (*(Spend(p.fuel) for p in plans), count)
    rules.append(Rule("tool.unknown", unknown, spend, Effect("reply", word="unknown_tool"), "default: unknown_tool"))
    return rules


def judged(c: Context) -> tuple[Rule, ...]:
    """Nothing more is to be judged: the round runs, or it is complete and the ladders move."""
    waiting = Not(Le(Var("open"), Lit(0)))
    rules = [
        Rule("judged.run", waiting, to(Phase.TOOLS), Effect("run"), "default: execute"),
        refused_above("judged", "tools_above"),
    ]
    clear = tuple(Set(p.over, 0) for p in c.plans if p.resource in ("tool_calls", "unknown_tools"))
    clear += tuple(Set(broken_flag(index), 0) for index in ending_breakers(c))
    for occasion in c.preferred():
        if occasion.plan is not None and occasion.resource in ("tool_calls", "unknown_tools"):
            rules += _over(occasion, occasion.plan, clear)
        elif occasion.breaker >= 0:
            pending = to(Phase.READY, Set("pending", occasion.code), *clear)
            rules.append(rule("judged.finalize", occasion, _broken(occasion.breaker), pending, "continue", "pending"))
    for index, breaker in enumerate(c.breakers):
        if breaker.when_open == "stop":
            end = Effect("end", word="breaker")
            rules.append(
                Rule(
                    f"judged.broken.{index + 1}", _broken(index), to(Phase.ENDED, *clear), end, breaker_origin(breaker)
                )
            )
    ready = to(Phase.READY, *clear)
    rules.append(Rule("judged.complete", TRUE, ready, Effect("continue"), "default: round"))
    return tuple(rules)


def _over(occasion: Occasion, plan: Plan, clear: Updates) -> list[Rule]:
    """Something in the round did not fit: the ladder moves now that the round is complete."""
    over = Eq(Var(plan.over), Lit(1))
    rules = []
    # A consultant is asked before the next call, as the function of a finalization is.
    consultants = [(i, s) for i, s in plan.ladder() if isinstance(s, Consult)]
    for position, _ in (*occasion.finalizations(), *consultants):
        guard = all_of(over, plan.at(position))
        updates = to(Phase.READY, Set("pending", occasion.code), *clear)
        rules.append(rule("judged.finalize", plan, guard, updates, "continue", "pending", position))
    end, asked = to(Phase.ENDED, *clear), plan.question()
    # Where a person is to be asked, what did not fit was a provider's doing: they are when something of ours would not.
    spent = all_of(over, Not(plan.at(asked[0]))) if asked else over
    return [*rules, rule("judged.stop", plan, spent, end, "end", "incomplete")]


def tool_end(c: Context) -> tuple[Rule, ...]:
    """One call less is open."""
    last = to(Phase.JUDGING, Spend("open"))
    return (
        Rule("tool_end.last", Le(Var("open"), Lit(1)), last, Effect("again"), "default: execute"),
        Rule("tool_end.wait", TRUE, (Spend("open"),), Effect("wait"), "default: execute"),
    )


def unstarted(c: Context) -> tuple[Rule, ...]:
    """A call that was to run is answered before it could start: what was counted for it is given back."""
    back: Updates = (*(Grant(p.fuel, 1) for p in c.plans if p.resource == "tool_calls"), Count(meter("tool_calls"), -1))
    last = to(Phase.JUDGING, Spend("open"), *back)
    one, wait = Le(Var("open"), Lit(1)), (Spend("open"), *back)
    rules: list[Rule] = []
    for index, here, skip, origin in _skipped(c):
        number = index + 1
        rules += [
            Rule(f"unstarted.broken.{number}.last", all_of(one, here), (*last, skip), Effect("again"), origin),
            Rule(f"unstarted.broken.{number}.wait", here, (*wait, skip), Effect("wait"), origin),
        ]
    return (
        *rules,
        Rule("unstarted.last", one, last, Effect("again"), "default: execute"),
        Rule("unstarted.wait", TRUE, wait, Effect("wait"), "default: execute"),
    )


def tool_ends(c: Context) -> tuple[Rule, ...]:
    """A tool ends the run itself; what else is in flight is stopped first."""
    others, answer = Not(Le(Var("open"), Lit(1))), Eq(Field("answer"), Lit(1))
    stop, end = to(Phase.STOPPING, Spend("open")), to(Phase.ENDED, Spend("open"))
    origin = "default: tool"
    return (
        Rule("tool_ends.answer_stop", all_of(others, answer), stop, Effect("stop", word="tool_answer"), origin),
        Rule("tool_ends.stop", others, stop, Effect("stop", word="tool_stop"), origin),
        Rule("tool_ends.answer", answer, end, Effect("end", word="tool_answer"), origin),
        Rule("tool_ends.end", TRUE, end, Effect("end", word="tool_stop"), origin),
    )
