"""The rules about model calls: the start of a run, admission, and what comes back (semantics, sections 3 to 5)."""

from __future__ import annotations

from engine.core.machine.expr import TRUE, Eq, Expr, Field, Le, Lit, Not, Var, all_of, any_of
from engine.core.machine.machine import Count, Effect, Phase, Refill, Rule, Set, Spend
from engine.core.machine.plan import RESERVE, Plan
from engine.core.machine.rules import NOT_FINAL, Context, Updates, asks_host, late, meter, rule, to, would_not_fit
from engine.core.policy import Extend, Finalize, Stop


def start(c: Context) -> tuple[Rule, ...]:
    """The run begins, unless no time is left; fuel per thread starts at what earlier runs have left."""
    spent = tuple(Spend(p.fuel, Field(f"{p.fuel}_spent")) for p in c.plans if p.counted and p.limit.scope == "thread")
    begin = to(Phase.READY, *spent)
    return (*late(c, "start"), Rule("start.begin", TRUE, begin, Effect("continue"), "default: start"))


def call(c: Context) -> tuple[Rule, ...]:
    """A call is requested: deadlines, what calls draw on, whether it is the final one, and last the ordinary call."""
    rules = list(late(c, "call"))
    for plan in c.drawn():
        rules += would_not_fit("call", plan)
    rules += _lost_finalizations(c)
    rules += [rule for plan in c.preferred() for rule in _final_reasons(c, plan)]
    rules.append(Rule("call.admit", TRUE, _spend_call(c), Effect("call"), "default: call"))
    return tuple(rules)


def attempt(c: Context) -> tuple[Rule, ...]:
    """A further attempt: what it draws on is looked at again, but not ``llm_calls``, for it is the same call."""
    rules = list(late(c, "attempt"))
    drawn = [plan for plan in c.drawn() if plan.resource != "llm_calls"]
    for plan in drawn:
        rules += would_not_fit("attempt", plan)
    spend = _spend_attempt(c)
    rules.append(Rule("attempt.final", Not(NOT_FINAL), spend, Effect("final"), "default: attempt"))
    for plan in c.preferred():
        # Only what moves between two attempts of one call can make the later one final.
        if plan.resource == "llm_attempts" or not plan.counted:
            for position, step in plan.ladder():
                # The host is not asked between two attempts: a computed instruction gives way to the default.
                if isinstance(step, Finalize):
                    guard = all_of(_due(c, plan), plan.at(position))
                    rules.append(_final(c, "attempt", plan, guard, spend, position))
    rules.append(Rule("attempt.admit", TRUE, spend, Effect("call"), "default: attempt"))
    return tuple(rules)


def resolved(c: Context) -> tuple[Rule, ...]:
    """The host's function has answered: the question that waited for it is looked at again."""
    rules: list[Rule] = []
    ready = Set("phase", Phase.READY)
    if c.policy.finalization.using:
        asked: Expr = Eq(Var("asked"), Lit(len(c.plans) + 1))
        done = (ready, Set("asked", 0))
        rules.append(Rule("resolved.text", asked, done, Effect("refuse"), c.mode_origin))
    for plan in c.plans:
        for position, step in plan.ladder():
            if not (isinstance(step, Finalize) and step.using):
                continue
            asked = all_of(Eq(Var("asked"), Lit(plan.index + 1)), plan.at(position))
            given = all_of(asked, Eq(Field("ok"), Lit(1)))
            move = (ready, Set("asked", 0), Set(plan.step or "", position + 1))
            ok = (ready, Set("given", 1))
            rules.append(rule("resolved.ok", plan, given, ok, "again", "resolved", position))
            if any(isinstance(later, Extend) for later in plan.steps[position + 1 : position + 2]):
                # More is granted instead: what waited for this finalization does so no longer.
                mine = all_of(asked, Eq(Var("pending"), Lit(plan.index + 1)))
                forget = (*move, Set("pending", 0))
                rules.append(rule("resolved.given_up", plan, mine, forget, "again", "resolver_failed", position))
            rules.append(rule("resolved.failed", plan, asked, move, "again", "resolver_failed", position))
    rules.append(Rule("resolved.other", TRUE, (ready,), Effect("again"), "default: resolve"))
    return tuple(rules)


def _lost_finalizations(c: Context) -> list[Rule]:
    """Something did not fit and its finalization could not be made: behind it stands ``stop``."""
    rules = []
    for plan in c.plans:
        if asks_host(plan) and plan.resource in ("tool_iterations", "tool_calls", "unknown_tools"):
            for position, step in plan.ladder():
                if isinstance(step, Stop):
                    guard = all_of(NOT_FINAL, Eq(Var("pending"), Lit(plan.index + 1)), plan.at(position))
                    end = to(Phase.ENDED)
                    rules.append(rule("call.lost", plan, guard, end, "end", "incomplete"))
    return rules


def _due(c: Context, plan: Plan) -> Expr:
    """The next call must be the final one, as far as this limit is concerned."""
    pending = Eq(Var("pending"), Lit(plan.index + 1))
    if plan.resource in ("llm_calls", "llm_attempts"):
        return Eq(Var(plan.fuel), Lit(1))
    if not plan.counted:
        return Eq(Field(plan.field), Lit(RESERVE))
    waits = c.reactive and plan.resource in ("tool_iterations", "tool_calls")
    # A model cannot be kept from naming a tool nobody has: none allowed means that the first one is answered.
    if waits or (plan.resource == "unknown_tools" and plan.maximum == 0):
        return pending
    return any_of(pending, plan.exhausted())


def _final_reasons(c: Context, plan: Plan) -> list[Rule]:
    rules: list[Rule] = []
    for position, step in plan.ladder():
        if not isinstance(step, Finalize):
            continue
        due = all_of(NOT_FINAL, _due(c, plan), plan.at(position))
        if step.using:
            asked = all_of(Eq(Var("asked"), Lit(plan.index + 1)), Eq(Var("given"), Lit(1)))
            rules.append(_final(c, "call", plan, all_of(due, asked), _spend_call(c), position))
            ask = to(Phase.RESOLVING, Set("asked", plan.index + 1), Set("given", 0))
            rules.append(rule("call.resolve", plan, due, ask, "resolve", "resolve", position))
        else:
            rules.append(_final(c, "call", plan, due, _spend_call(c), position))
    return rules


def _final(c: Context, event: str, plan: Plan, guard: Expr, spend: Updates, step: int) -> Rule:
    updates = (*spend, Set("reason", plan.index + 1))
    return rule(f"{event}.final", plan, guard, updates, "final", "finalize", step)


def _spend_call(c: Context) -> Updates:
    calls = [Spend(p.fuel) for p in c.plans if p.resource == "llm_calls"]
    empties = c.policy.finalization.empty_retries
    refill = (Refill("empties_left", empties),) if empties else ()
    settle = (Set("asked", 0), Set("given", 0)) if c.resolvers else ()
    return (*_spend_attempt(c), *calls, Count(meter("llm_calls")), *refill, *settle)


def _spend_attempt(c: Context) -> Updates:
    attempts = [Spend(p.fuel) for p in c.plans if p.resource == "llm_attempts"]
    return to(Phase.CALLING, *attempts, Count(meter("llm_attempts")))


def answered(c: Context) -> tuple[Rule, ...]:
    """Text, or a structured answer: the run has what it was made for."""
    end = to(Phase.ENDED)
    return (
        Rule("answered.final", Not(NOT_FINAL), end, Effect("end", word="finalized"), "default: answer"),
        Rule("answered.completed", TRUE, end, Effect("end", word="completed"), "default: answer"),
    )


def empty(c: Context) -> tuple[Rule, ...]:
    """An answer without visible text is never a success: asked for again, or the end."""
    origin = c.mode_origin
    rules = []
    if c.policy.finalization.empty_retries:
        guard = all_of(Not(Le(Var("empties_left"), Lit(0))), _attempts_left(c))
        updates = to(Phase.WAITING, Spend("empties_left"))
        rules.append(Rule("empty.retry", guard, updates, Effect("retry", word="empty"), origin))
    end = to(Phase.ENDED)
    rules.append(Rule("empty.stop", TRUE, end, Effect("end", word="empty_answer"), origin))
    return tuple(rules)


def paused(c: Context) -> tuple[Rule, ...]:
    """The provider wants to go on later: a further attempt of the same call."""
    guard = all_of(Eq(Field("more"), Lit(1)), _attempts_left(c))
    end = to(Phase.ENDED)
    return (
        Rule("paused.retry", guard, to(Phase.WAITING), Effect("retry", word="pause"), "default: pause"),
        Rule("paused.stop", TRUE, end, Effect("end", word="llm_failure"), "default: llm_failure stop"),
    )


def failed(c: Context) -> tuple[Rule, ...]:
    """The attempt failed."""
    rules = late(c, "failed")
    # A call that the run itself cut to keep its reserve is no failure of the model: the final call follows.
    cut = all_of(Eq(Field("cut"), Lit(1)), Eq(Field("delivered"), Lit(0)), NOT_FINAL)
    ready = to(Phase.READY)
    if any(plan.resource == "wall" for plan in c.plans):
        rules.append(Rule("failed.cut", cut, ready, Effect("continue"), "default: deadline"))
    end = to(Phase.ENDED)
    rules.append(Rule("failed.stop", TRUE, end, Effect("end", word="llm_failure"), "default: llm_failure stop"))
    return tuple(rules)


def unmetered(c: Context) -> tuple[Rule, ...]:
    """Usage is limited and nobody knows it: a run without numbers cannot be held to them."""
    end = to(Phase.ENDED)
    return (Rule("unmetered", TRUE, end, Effect("end", word="usage_unknown"), "default: usage"),)


def unpriced(c: Context) -> tuple[Rule, ...]:
    """Cost is limited and the model has no price: a guessed one would be a wrong limit."""
    end = to(Phase.ENDED)
    return (Rule("unpriced", TRUE, end, Effect("end", word="price_unknown"), "default: price"),)


def _attempts_left(c: Context) -> Expr:
    """A further attempt could be admitted, with the extension if one is untaken."""
    parts: list[Expr] = []
    for plan in c.plans:
        if plan.resource == "llm_attempts":
            extension = plan.extension()
            untaken = plan.at(extension[0]) if extension else any_of()
            parts.append(any_of(Not(Le(Var(plan.fuel), Lit(0))), untaken))
    return all_of(*parts)
