"""What the generated ``step`` says of an attempt that failed and is tried again: the wait, and the attempt behind it.

Printed for ladders that begin with a ``retry``: the first failures of a provider are the ordinary ones. Guards and
updates are the machine's; waits, notes and records are made by the functions that make them for the handlers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from engine.core import hot_amounts
from engine.core.admission import attempted
from engine.core.core import Core
from engine.core.failing import retry_later
from engine.core.hot_text import filled, if_any
from engine.core.ladders import Retry
from engine.core.machine.expr import FALSE, assume, to_python
from engine.core.machine.failure_plan import NEVER_RETRIED_BROADLY, FailurePlan
from engine.core.machine.machine import Rule
from engine.core.machine.to_python import live, packed, update_line
from engine.core.switching import wait
from engine.core.vocabulary import REASONS


def branches(core: Core, enough: Mapping[str, int], parts: Mapping[str, str]) -> str:
    """The branches for a failure and for the end of a wait; empty where nothing is tried again at once."""
    plans = _plans(core)
    if not plans:
        return ""
    unlike = "or (more is not None and more.pools is not None)"
    own = {
        "FAILED_READS": hot_amounts.reads(core, "failed"),
        "FAILED_UNLIKE": if_any(f"{unlike}\n{hot_amounts.near(core, 'failed')}"),
        "RETRIES": "\n".join(_retry(core, plan, enough) for plan in plans),
        "ATTEMPT_READS": hot_amounts.reads(core, "attempt"),
        "ATTEMPT_UNLIKE": if_any(f"{unlike}\n{parts['ATTEMPT_UNUSUAL']}\n{hot_amounts.near(core, 'attempt')}"),
    }
    return filled(_TEMPLATE, {**parts, **own})


def scope(core: Core) -> dict[str, Any]:
    """What they refer to."""
    plans = _plans(core)
    rules = {f"RETRY_{plan.index}": _rule(core, plan) for plan in plans}
    steps = {f"STEP_{plan.index}": plan.rule.then[0] for plan in plans}
    ladders = {reason: plan.index for reason, plan in _by_reason(core).items()}
    again = partial(attempted, core)
    attempt = live(core.machine.rules["attempt"])[-1]
    return (
        {"LADDERS": ladders, "ATTEMPT": attempt, "again": again, "wait": wait, "retry_later": retry_later}
        | rules
        | steps
    )


def _by_reason(core: Core) -> dict[str, FailurePlan]:
    """The ladder of each reason, where it begins with a ``retry`` that is meant for it."""
    found = {}
    for reason in REASONS:
        chosen = core.switching.chosen(reason)
        if chosen is None or (chosen.broad and reason in NEVER_RETRIED_BROADLY):
            continue
        if isinstance(next(step for _, step in chosen.plan.steps()), Retry):
            found[reason] = chosen.plan
    return found


def _plans(core: Core) -> list[FailurePlan]:
    meant = {plan.index for plan in _by_reason(core).values()}
    return [plan for plan in core.switching.plans if plan.index in meant]


def _rule(core: Core, plan: FailurePlan) -> Rule:
    """The machine's rule for the first step of a ladder."""
    place = ("retry", plan.index, 0)
    rules = core.machine.rules["failed"]
    return next(r for r in rules if (r.effect.kind, r.effect.ladder, r.effect.step) == place)


def _retry(core: Core, plan: FailurePlan, enough: Mapping[str, int]) -> str:
    """The branch for one ladder, behind the checks that every failure needs."""
    rule, step = _rule(core, plan), plan.rule.then[0]
    assert isinstance(step, Retry)
    known = {**enough, "cut": 0, "delivered": 0, "ladder": plan.index, "start": 0, plan.fits(0): 1}
    rules = live(core.machine.rules["failed"])
    assert all(assume(before.guard, known) == FALSE for before in rules[: rules.index(rule)])
    return "\n".join(
        (
            f"if ladder == {plan.index} and {to_python(assume(rule.guard, known))}:  # {rule.origin}",
            f"    used = {step.times} - {plan.retries(0)}",
            f"    due = at + wait(STEP_{plan.index}, used, event)",
            f"    if due < {hot_amounts.until(core) or 'NO_TIME'}:",
            *(f"        {update_line(update)}" for update in rule.updates),
            f"        after, rule, step = {packed(core.machine)}, RETRY_{plan.index}, STEP_{plan.index}",
            "        return retry_later(state, at, after, rule, step, used, due, event.reason)",
        )
    )


_TEMPLATE = """if kind is ModelFailed:
    at, call = event.at, state.call
    <VARIABLES> = state.vars
    ladder = LADDERS.get(event.reason)
    if (
        ladder is None
        or phase != CALLING
        or at < state.at
        or event.call != call.id
        or event.attempt != call.attempt
        or event.usage is not None
        or event.partial == "delivered"
    ):
        return general(state, event)
    <FAILED_READS>
    <FAILED_UNLIKE>
    <RETRIES>
    return general(state, event)
if kind is RetryDue:
    at, call = event.at, state.call
    <VARIABLES> = state.vars
    if phase != WAITING or at < state.at or event.call != call.id or at < call.extra.not_before:
        return general(state, event)
    <ATTEMPT_READS>
    <ATTEMPT_UNLIKE>
    <ATTEMPT_UPDATES>
    return again(state, at, <VALUES>, ATTEMPT, call)"""
