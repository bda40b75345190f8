"""The laws about failure ladders (semantics, section 5): the first step that can be taken is taken, each in its bounds.

What counts as possible is worked out from what was seen, never from the machine's own variables.
"""

from __future__ import annotations

from engine.core.ladders import Fallback, Finalize, Retry
from engine.core.machine.expr import FALSE, TRUE, Expr, Field, Le, Lit, Not, all_of
from engine.core.machine.failure_plan import FailurePlan, failure_plans
from engine.core.machine.machine import Refill, Set, Spend
from engine.core.machine.monitors import Check, Ghost, On, holds, more, seen_as
from engine.core.policy import FailureStep, Policy


def failure_laws(policy: Policy, attempts_left: Expr, calls_left: Expr) -> tuple[list[Ghost], list[Check]]:
    """Ghosts and checks; the two terms say whether a further attempt, and a further call, could be admitted."""
    falls = On("laddered", Set("falling", 1), seen_as("falls", 1))
    falling = (falls, On("laddered", Set("falling", 0)), On("call", Set("falling", 0)))
    ghosts, checks = [Ghost("falling", 0, falling)], []
    for plan in failure_plans(policy):
        here = seen_as("ladder", plan.index)
        words = f"{plan.origin} goes on after text was shown that cannot be taken back"
        checks.append(Check("F3", "laddered", words, seen_as("ends", 1), all_of(here, seen_as("delivered", 1))))
        for position, step in plan.steps():
            if isinstance(step, Retry):
                ghosts.append(_retries(plan, position, step))
            possible = _possible(plan, position, step, attempts_left, calls_left)
            checks += _step_checks(plan, position, step, possible)
    return ghosts, checks


def _left(plan: FailurePlan, position: int) -> str:
    return f"retries_of_{plan.index}_{position + 1}"


def _retries(plan: FailurePlan, position: int, step: Retry) -> Ghost:
    """A call has as many further attempts as the step says, each call anew."""
    name = _left(plan, position)
    taken = all_of(seen_as("ladder", plan.index), seen_as("step", position), seen_as("ends", 0))
    return Ghost(name, 0, (On("call", Refill(name, step.times)), On("laddered", Spend(name), taken)))


def _possible(plan: FailurePlan, position: int, step: FailureStep, attempts_left: Expr, calls_left: Expr) -> Expr:
    match step:
        case Retry():
            return all_of(more(_left(plan, position)), seen_as(plan.fits(position), 1), attempts_left)
        case Fallback():
            return all_of(seen_as(plan.switch(position), 1), calls_left)
        case Finalize():
            return all_of(holds("finalized", 0), calls_left)
    return TRUE


def _step_checks(plan: FailurePlan, position: int, step: FailureStep, possible: Expr) -> list[Check]:
    here = all_of(seen_as("ladder", plan.index), seen_as("delivered", 0), Le(Field("start"), Lit(position)))
    taken, passed = seen_as("step", position), Not(Le(Field("step"), Lit(position)))
    law = {"retry": "L1", "finalize": "L2"}.get(step.do, "F3")
    name = f"step {position + 1} of {plan.origin} ({step.do})"
    never = FALSE if possible == TRUE else Not(possible)
    return [
        Check(law, "laddered", f"{name} is taken although it cannot be", possible, all_of(here, taken)),
        Check("F3", "laddered", f"{name} is skipped although it could be taken", never, all_of(here, passed)),
    ]
