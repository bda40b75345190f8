"""The rules about what comes back from a model: answers, pauses, failures and their ladders (semantics, 4 and 5)."""

from __future__ import annotations

from engine.core.ladders import Consult, Fallback, Finalize, Retry
from engine.core.machine.expr import TRUE, Eq, Expr, Field, Le, Lit, Not, Var, all_of, any_of
from engine.core.machine.failure_plan import FailurePlan, Occasion
from engine.core.machine.machine import Effect, Phase, Rule, Set, Spend, Update
from engine.core.machine.rules import NOT_FINAL, Context, late, to
from engine.core.policy import FailureStep

_TOOLS_BEGUN = Eq(Var("phase"), Lit(Phase.TOOLS))
"""In a host that shows no whole replies, tools may have started before their reply is known."""


def answered(c: Context) -> tuple[Rule, ...]:
    """Text, or a structured answer: the run has what it was made for; tools that have begun before are stopped."""
    end, stop = to(Phase.ENDED), to(Phase.STOPPING)
    return (
        Rule("answered.final", Not(NOT_FINAL), end, Effect("end", word="finalized"), "default: answer"),
        Rule("answered.stop", _TOOLS_BEGUN, stop, Effect("stop", word="completed"), "default: answer"),
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
    """The provider wants to go on later: a further attempt of the same call, or else a failed one."""
    guard = all_of(Eq(Field("more"), Lit(1)), _attempts_left(c))
    return (
        Rule("paused.retry", guard, to(Phase.WAITING), Effect("retry", word="pause"), "default: pause"),
        Rule("paused.failed", TRUE, (), Effect("failed"), "default: pause"),
    )


def failed(c: Context) -> tuple[Rule, ...]:
    """The attempt failed: the first step of its reason's ladder that can be taken is taken."""
    rules = late(c, "failed")
    # A call that the run itself cut to keep its reserve is no failure of the model: the final call follows.
    cut = all_of(Eq(Field("cut"), Lit(1)), Eq(Field("delivered"), Lit(0)), NOT_FINAL)
    if c.of_resource("wall"):
        rules.append(Rule("failed.cut", cut, to(Phase.READY), Effect("continue"), "default: deadline"))
    end, stop = to(Phase.ENDED), Effect("end", word="llm_failure")
    shown = Eq(Field("delivered"), Lit(1))
    if c.failures:
        rules.append(Rule("failed.delivered", shown, end, stop, "default: text was shown"))
    for failure in c.failures:
        for position, step in failure.steps():
            rules.append(_failure_step(c, failure, position, step))
    rules.append(Rule("failed.stop", TRUE, end, stop, "default: llm_failure stop"))
    return tuple(rules)


def _failure_step(c: Context, failure: FailurePlan, position: int, step: FailureStep) -> Rule:
    """The step is taken if it can be; if not, the rule of the next one is looked at."""
    here = all_of(Eq(Field("ladder"), Lit(failure.index)), Le(Field("start"), Lit(position)))
    guard, updates, kind, word = here, to(Phase.ENDED), "end", "llm_failure"
    match step:
        case Retry():
            fuel = Var(failure.retries(position))
            fits = Eq(Field(failure.fits(position)), Lit(1))
            guard = all_of(here, Not(Le(fuel, Lit(0))), fits, _attempts_left(c))
            updates, kind, word = to(Phase.WAITING, Spend(fuel.name)), "retry", "retry"
        case Fallback():
            switch = Eq(Field(failure.switch(position)), Lit(1))
            guard = all_of(here, switch, _calls_left(c))
            updates, kind, word = to(Phase.READY), "fallback", "fallback"
        case Finalize():
            guard = all_of(here, NOT_FINAL, _calls_left(c))
            code = _occasion(c, position, failure).code
            updates, kind, word = to(Phase.READY, Set("pending", code)), "continue", "pending"
        case Consult():
            ask: Update = Set("asked", c.consult_asked(failure))
            updates, kind, word = to(Phase.RESOLVING, ask), "resolve", "consult"
    name = f"failed.{failure.index}.{position + 1}.{word}"
    return Rule(name, guard, updates, Effect(kind, word=word, ladder=failure.index, step=position), failure.origin)


def _occasion(c: Context, place: int, failure: FailurePlan) -> Occasion:
    return next(o for o in c.occasions if o.failure is failure and o.place == place)


def unmetered(c: Context) -> tuple[Rule, ...]:
    """Usage is limited and nobody knows it: a run without numbers cannot be held to them."""
    end, stop = to(Phase.ENDED), to(Phase.STOPPING)
    return (
        Rule("unmetered.stop", _TOOLS_BEGUN, stop, Effect("stop", word="usage_unknown"), "default: usage"),
        Rule("unmetered", TRUE, end, Effect("end", word="usage_unknown"), "default: usage"),
    )


def unpriced(c: Context) -> tuple[Rule, ...]:
    """Cost is limited and the model has no price: a guessed one would be a wrong limit."""
    end = to(Phase.ENDED)
    return (Rule("unpriced", TRUE, end, Effect("end", word="price_unknown"), "default: price"),)


def _attempts_left(c: Context) -> Expr:
    """A further attempt could be admitted, with the extension if one is untaken, or if a person grants it."""
    parts: list[Expr] = []
    for plan in c.plans:
        if plan.resource == "llm_attempts":
            untaken = [plan.at(step[0]) for step in (plan.extension(), plan.question()) if step]
            parts.append(any_of(Not(Le(Var(plan.fuel), Lit(0))), *untaken))
    return all_of(*parts)


def _calls_left(c: Context) -> Expr:
    """A further call could be admitted, as far as what is counted goes."""
    calls = [Not(Le(Var(plan.fuel), Lit(0))) for plan in c.of_resource("llm_calls")]
    return all_of(*calls, _attempts_left(c))
