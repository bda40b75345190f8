"""The rules about model calls: the start of a run, and admission (semantics, section 3)."""

from __future__ import annotations

from engine.core.machine.expr import TRUE, Eq, Expr, Field, Lit, Not, Var, all_of, any_of
from engine.core.machine.failure_plan import Occasion
from engine.core.machine.machine import Count, Effect, Phase, Refill, Rule, Set, Spend
from engine.core.machine.plan import RESERVE, Plan
from engine.core.machine.rules import (
    NOT_FINAL,
    Context,
    Updates,
    asks_host,
    consults,
    late,
    meter,
    refused_above,
    rule,
    to,
    would_not_fit,
)
from engine.core.policy import Ask, Consult, Extend, Retry, Stop

IN_ROUNDS = ("tool_iterations", "tool_calls", "unknown_tools")
"""Limits of which a round, or a part of it, may be too much; their ladders move when it is complete."""


def start(c: Context) -> tuple[Rule, ...]:
    """The run begins, unless no call of it could be admitted; fuel per thread starts at what earlier runs have left."""
    spent = tuple(Spend(p.fuel, Field(f"{p.fuel}_spent")) for p in c.plans if p.counted and p.limit.scope == "thread")
    end, begin = to(Phase.ENDED, *spent), to(Phase.READY, *spent)
    over = [rule("start.spent", p, _spent_before(p), end, "end", "incomplete") for p in c.drawn() if _shared(p)]
    return (
        *late(c, "start"),
        *over,
        refused_above("start"),
        Rule("start.begin", TRUE, begin, Effect("continue"), "default: start"),
    )


def _shared(plan: Plan) -> bool:
    """Others may have spent it before the run begins, and its ladder has nothing to say about the first call."""
    return plan.limit.scope != "run" and not (plan.steps and isinstance(plan.steps[0], Extend | Ask | Consult))


def _spent_before(plan: Plan) -> Expr:
    if plan.counted and plan.limit.scope == "thread":
        return Eq(Field(f"{plan.fuel}_spent"), Lit(plan.maximum))
    return plan.exhausted()


def call(c: Context) -> tuple[Rule, ...]:
    """A call is requested: deadlines, what calls draw on, whether it is the final one, and last the ordinary call."""
    rules = list(late(c, "call"))
    for plan in c.drawn_pools():
        rules += would_not_fit(c, "call", plan)
    rules.append(refused_above("call"))
    for plan in c.drawn_counters():
        rules += would_not_fit(c, "call", plan)
    rules += _lost_finalizations(c)
    # Only a fallback asks for a further call once the final one was made: it is final too.
    rules.append(Rule("call.final", Not(NOT_FINAL), _spend_call(c), Effect("final"), "default: call"))
    rules += [rule for occasion in c.preferred() for rule in _final_reasons(c, occasion)]
    rules.append(Rule("call.admit", TRUE, _spend_call(c), Effect("call"), "default: call"))
    return tuple(rules)


def attempt(c: Context) -> tuple[Rule, ...]:
    """A further attempt: what it draws on is looked at again, but not ``llm_calls``, for it is the same call."""
    rules = list(late(c, "attempt"))
    for plan in c.drawn_pools():
        rules += would_not_fit(c, "attempt", plan) if plan.resource != "llm_calls" else []
    rules.append(refused_above("attempt"))
    for plan in c.drawn_counters():
        rules += would_not_fit(c, "attempt", plan) if plan.resource != "llm_calls" else []
    spend = _spend_attempt(c)
    rules.append(Rule("attempt.final", Not(NOT_FINAL), spend, Effect("final"), "default: attempt"))
    for occasion in c.preferred():
        # Only what moves between two attempts of one call can make the later one final.
        if occasion.plan is not None and (occasion.resource == "llm_attempts" or not occasion.plan.counted):
            # The host is not asked between two attempts: a computed instruction gives way to the default.
            for position, _ in occasion.finalizations():
                guard = all_of(_due(c, occasion), occasion.at(position))
                rules.append(_final("attempt", occasion, guard, spend, position))
    rules.append(Rule("attempt.admit", TRUE, spend, Effect("call"), "default: attempt"))
    return tuple(rules)


def resolved(c: Context) -> tuple[Rule, ...]:
    """The host's function has answered: a refusal's text, a failure's next step, or an instruction."""
    rules: list[Rule] = []
    ready, settled = Set("phase", Phase.READY), Set("asked", 0)
    if c.policy.finalization.using:
        asked = Eq(Var("asked"), Lit(c.text_asked))
        rules.append(Rule("resolved.text", asked, (ready, settled), Effect("refuse"), c.mode_origin))
    for failure in c.failures:
        if not any(isinstance(step, Consult) for _, step in failure.steps()):
            continue
        asked = Eq(Var("asked"), Lit(c.consult_asked(failure)))
        back, effect = to(Phase.CALLING, settled), Effect("again", word="consulted", ladder=failure.index)
        rules.append(Rule(f"resolved.consulted.{failure.index}", asked, back, effect, failure.origin))
    for occasion in c.occasions:
        for position, step in occasion.finalizations():
            if step.using:
                rules += _instruction_resolved(occasion, position)
    for plan in c.plans:
        for position, consult in plan.ladder():
            if isinstance(consult, Consult):
                rules += _consulted(plan, position)
    rules.append(Rule("resolved.other", TRUE, (ready,), Effect("again"), "default: resolve"))
    return tuple(rules)


def _instruction_resolved(occasion: Occasion, position: int) -> list[Rule]:
    asked = all_of(Eq(Var("asked"), Lit(occasion.code)), occasion.at(position))
    given = all_of(asked, Eq(Field("ok"), Lit(1)))
    ok = rule("resolved.ok", occasion, given, to(Phase.READY, Set("given", 1)), "again", "resolved", position)
    if occasion.plan is None:
        # There is no further step: what was to end in an answer ends without one.
        lost = rule("resolved.failed", occasion, asked, to(Phase.ENDED, Set("asked", 0)), "end", occasion.resource)
        return [ok, lost]
    move = to(Phase.READY, Set("asked", 0), Set(occasion.plan.step or "", position + 1))
    given_up = _given_up("resolved.given_up", occasion.plan, asked, move, "resolver_failed", position, position + 1)
    return [ok, *given_up, rule("resolved.failed", occasion, asked, move, "again", "resolver_failed", position)]


def _given_up(id: str, plan: Plan, guard: Expr, move: Updates, word: str, position: int, next: int) -> list[Rule]:
    """Where the next step grants more, or asks for it, what waited for a final call does so no longer."""
    if not (plan.resource in IN_ROUNDS and isinstance(dict(plan.ladder()).get(next), Extend | Ask)):
        return []
    waited = all_of(guard, Eq(Var("pending"), Lit(plan.index + 1)))
    return [rule(id, plan, waited, (*move, Set("pending", 0)), "again", word, position)]


def _consulted(plan: Plan, position: int) -> list[Rule]:
    """The step that the host chose, or, where it chose none, the next."""
    asked, settled = all_of(Eq(Var("asked"), Lit(plan.index + 1)), plan.at(position)), Set("asked", 0)
    rules = []
    for later, _ in plan.ladder():
        if later > position:
            guard = all_of(asked, Eq(Field("chosen"), Lit(later + 1)))
            updates = to(Phase.READY, settled, Set(plan.step or "", later))
            name = f"resolved.consulted.{later + 1}"
            rules += _given_up(f"{name}.given_up", plan, guard, updates, "consulted", position, later)
            rules.append(rule(name, plan, guard, updates, "again", "consulted", position))
    move = to(Phase.READY, settled, Set(plan.step or "", position + 1))
    rules += _given_up("resolved.unconsulted.given_up", plan, asked, move, "resolver_failed", position, position + 1)
    return [*rules, rule("resolved.unconsulted", plan, asked, move, "again", "resolver_failed", position)]


def _lost_finalizations(c: Context) -> list[Rule]:
    """Something did not fit and its finalization could not be made: behind it stands ``stop``."""
    rules = []
    for plan in c.plans:
        if asks_host(plan) and plan.resource in IN_ROUNDS:
            stopped = any_of(*(plan.at(position) for position, step in plan.ladder() if isinstance(step, Stop)))
            guard = all_of(NOT_FINAL, Eq(Var("pending"), Lit(plan.index + 1)), stopped)
            rules.append(rule("call.lost", plan, guard, to(Phase.ENDED), "end", "incomplete"))
    return rules


def _due(c: Context, occasion: Occasion) -> Expr:
    """The next call must be the final one, as far as this occasion is concerned."""
    pending, plan = Eq(Var("pending"), Lit(occasion.code)), occasion.plan
    if plan is None:
        return pending
    if plan.resource in ("llm_calls", "llm_attempts"):
        return Eq(Var(plan.fuel), Lit(1))
    if not plan.counted:
        return Eq(Field(plan.field), Lit(RESERVE))
    waits = c.reactive and plan.resource in ("tool_iterations", "tool_calls")
    # A model cannot be kept from naming a tool nobody has: none allowed means that the first one is answered.
    if waits or (plan.resource == "unknown_tools" and plan.maximum == 0):
        return pending
    return any_of(pending, plan.exhausted())


def _final_reasons(c: Context, occasion: Occasion) -> list[Rule]:
    rules: list[Rule] = []
    if occasion.plan is not None and occasion.plan.counted:
        last = Eq(Var(occasion.plan.fuel), Lit(1))
        calls = occasion.resource in ("llm_calls", "llm_attempts")
        reached = last if calls else any_of(Eq(Var("pending"), Lit(occasion.code)), occasion.plan.exhausted())
        rules += consults("due", occasion.plan, all_of(NOT_FINAL, reached))
    elif occasion.resource == "wall" and occasion.plan is not None:
        rules += consults("due", occasion.plan, all_of(NOT_FINAL, Eq(Field(occasion.plan.field), Lit(RESERVE))))
    for position, step in occasion.finalizations():
        due = all_of(NOT_FINAL, _due(c, occasion), occasion.at(position))
        if step.using:
            asked = all_of(Eq(Var("asked"), Lit(occasion.code)), Eq(Var("given"), Lit(1)))
            rules.append(_final("call", occasion, all_of(due, asked), _spend_call(c), position))
            ask = to(Phase.RESOLVING, Set("asked", occasion.code), Set("given", 0))
            rules.append(rule("call.resolve", occasion, due, ask, "resolve", "resolve", position))
        else:
            rules.append(_final("call", occasion, due, _spend_call(c), position))
    return rules


def _final(event: str, occasion: Occasion, guard: Expr, spend: Updates, step: int) -> Rule:
    updates = (*spend, Set("reason", occasion.code))
    return rule(f"{event}.final", occasion, guard, updates, "final", "finalize", step)


def _spend_call(c: Context) -> Updates:
    calls = [Spend(p.fuel) for p in c.plans if p.resource == "llm_calls"]
    empties = c.policy.finalization.empty_retries
    refill = [Refill("empties_left", empties)] if empties else []
    for failure in c.failures:
        refill += [Refill(failure.retries(i), s.times) for i, s in failure.steps() if isinstance(s, Retry)]
    settle = (Set("asked", 0), Set("given", 0)) if c.resolvers else ()
    return (*_spend_attempt(c), *calls, Count(meter("llm_calls")), *refill, *settle)


def _spend_attempt(c: Context) -> Updates:
    attempts = [Spend(p.fuel) for p in c.plans if p.resource == "llm_attempts"]
    return to(Phase.CALLING, *attempts, Count(meter("llm_attempts")))
