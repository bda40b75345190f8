"""What a run would have needed for another decision: tried, not guessed. A limit that decided is raised, and the event
decided again.

Only for the limits of the policy itself, where one number says it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from engine.core import decisions as d
from engine.core.events import AnyEvent
from engine.core.machine.plan import Plan
from engine.core.state import State
from engine.core.step import Compiled, compile
from engine.core.tracing import Looked, Traced
from policy_lang.why.happened import decision_words
from policy_lang.why.scene import limit_word, quantity

_REFUSING = frozenset(("end", "stop", "final", "reply", "refuse", "suspend", "resolve", "continue"))
"""What a limit decides where something does not fit it."""


def otherwise(compiled: Compiled, before: State, event: AnyEvent, traced: Traced) -> tuple[str, ...]:
    """For each limit that decided: with how much more of it the decision would have been which."""
    said = []
    for plan, more in _wanted(compiled, traced):
        limit = plan.limit
        decision = _raised(compiled, before, event, plan, more)
        if decision is None or _same(decision, traced.decision, event.at):
            continue
        then, now = quantity(plan.resource, limit.max or 0), quantity(plan.resource, (limit.max or 0) + more)
        said.append(f"with {limit_word(plan)} {now} instead of {then}: {decision_words(decision, event.at)}")
    return tuple(said)


def _same(one: d.AnyDecision, other: d.AnyDecision, at: int) -> bool:
    """Is it the same for people? Numbers of steps and deadlines are not."""
    return decision_words(one, at) == decision_words(other, at)


def _wanted(compiled: Compiled, traced: Traced) -> Iterator[tuple[Plan, int]]:
    """The limits whose rules fired, each once, with how much more would let an ordinary call, round or tool fit."""
    told = set()
    for looked in traced.looks:
        effect = looked.reaction.rule.effect
        if effect.limit < 0 or effect.kind not in _REFUSING or effect.limit in told:
            continue
        told.add(effect.limit)
        plan = compiled.core.plans[effect.limit]
        more = 1 if plan.counted else _short(compiled, plan, looked)
        if more > 0:
            yield plan, more


def _short(compiled: Compiled, plan: Plan, looked: Looked) -> int:
    """How much of an amount is missing for an ordinary request."""
    sight, core = looked.sight, compiled.core
    if sight is None:
        return 0
    amount = next(a for a in core.amounts.limits if a.plan.index == plan.index)
    need = amount.need(core.amounts.price(sight.model), sight.input_tokens or 0)
    free = amount.maximum(sight.values) - amount.used(sight.book, sight.at) - need
    return amount.kept(sight.values) - free


def _raised(compiled: Compiled, before: State, event: AnyEvent, plan: Plan, more: int) -> d.AnyDecision | None:
    """What is decided where the limit is so much larger; ``None`` where that makes another machine of the policy."""
    policy = compiled.policy
    limits = tuple(
        limit.model_copy(update={"max": (limit.max or 0) + more}) if limit.id == plan.limit.id else limit
        for limit in policy.limits
    )
    other = compile(policy.model_copy(update={"limits": limits}), reference=True)
    names = [variable.name for variable in other.machine.variables]
    if names != [variable.name for variable in compiled.machine.variables]:
        return None
    values = list(before.vars)
    if plan.counted:
        values[names.index(plan.fuel)] += more
    book = before.book
    run = structs.replace(book.run, deadline=other.core.amounts.deadline(tuple(values), book.run, final=True))
    state = structs.replace(before, vars=tuple(values), book=structs.replace(book, run=run))
    return other.step(state, event)[1]
