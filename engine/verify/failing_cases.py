"""The cases of failures that rules tell apart, as events have them: reasons, and the clients that a host has.

Used to play runs that a search has found (``replay``). Decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from engine.core.ladders import Fallback, Retry
from engine.core.machine.failure_plan import NEVER_RETRIED_BROADLY, failure_plans
from engine.core.policy import Policy
from engine.core.state import NO_TIME
from engine.core.vocabulary import REASONS
from engine.verify.cases import NoCase
from engine.verify.failures import Ladders
from engine.verify.traces import TraceStep


def clients_had(policy: Policy, trace: Iterable[TraceStep], own: str) -> list[str]:
    """The clients that the host has besides its ``own``: none of those of a ``fallback`` that is passed by, but those
    that it led to before."""
    passed: set[str] = set()
    led: Counter[tuple[int, int]] = Counter()
    for step in trace:
        for plan in failure_plans(policy) if step.event == "failed" else ():
            for place, one in plan.steps():
                at = plan.index, place
                if not isinstance(one, Fallback):
                    continue
                if step.effect.kind == "fallback" and (step.effect.ladder, step.effect.step) == at:
                    led[at] += 1
                elif _passed(step, *at) and not step.fields.get(plan.switch(place)):
                    passed |= set(one.clients[led[at] :])
    return [name for name in policy.clients() if name not in passed and name != own]


def reason_for(policy: Policy, ladders: Ladders, failed: TraceStep) -> str:
    """A reason that the ladder is for; where a ``retry`` was not in time, one that retrying cures of nothing.

    Raises ``NoCase``.
    """
    ladder = failed.fields.get("ladder", 0)
    plan = failure_plans(policy)[ladder - 1] if ladder else None
    named = [r for r in plan.rule.reasons if r in REASONS] if plan else []
    late = plan is not None and any(
        isinstance(step, Retry) and _passed(failed, ladder, place) and not failed.fields[plan.fits(place)]
        for place, step in plan.steps()
    )
    reasons: list[str] = [*(NEVER_RETRIED_BROADLY if late else ()), *named, *REASONS]
    for reason in reasons:
        found = ladders.of(reason)
        if (found.index if found else 0) == ladder:
            return reason
    raise NoCase("every reason has a ladder" if not ladder else "no reason has this ladder")


def _passed(step: TraceStep, ladder: int, place: int) -> bool:
    """Was this place of the ladder looked at, and another step taken?"""
    here = step.fields.get("ladder") == ladder and step.fields.get("start", 0) <= place
    taken = step.effect.step if step.effect.ladder else NO_TIME
    return here and place < taken
