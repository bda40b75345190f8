"""One sentence for each rule about failed model calls: which failures it is for, and its steps in order.

Asks the engine which rule a reason leads to, so that a sentence names exactly the reasons it is for. Decides nothing.
"""

from __future__ import annotations

from typing import Final

from engine.core.ladders import Consult, FailureStep, Fallback, Finalize, Retry, Stop
from engine.core.machine.failure_plan import NEVER_RETRIED_BROADLY
from engine.core.policy import FailureRule, Policy
from engine.core.switching import Switching
from engine.core.vocabulary import REASONS
from policy_lang.explain_limits import final_call
from policy_lang.names import listed
from policy_lang.quantities import duration_text

ENDS: Final = "the run ends as failed (`llm_failure`)"

_SKIPPED: Final = (
    "A step after a failed model call that cannot be taken is skipped: a `retry` that is used up or whose wait would "
    "not end in time, a `fallback` with no client left, a `finalize` after the final call, whatever the limits do not "
    "allow."
)
_ASKED: Final = "A provider that asks for a longer wait gets it, but never more than the longest wait of the `retry`."
_SHOWN: Final = f"If text was shown that cannot be taken back, no step is taken: {ENDS}, the text as partial."


def sentence(rule: FailureRule, policy: Policy) -> str:
    """The sentence of one rule."""
    switching = Switching(policy)
    mine = [reason for reason in REASONS if (found := switching.chosen(reason)) and found.plan.rule is rule]
    broad = [reason for reason in mine if reason in NEVER_RETRIED_BROADLY and reason not in rule.reasons]
    end = next((place for place, step in enumerate(rule.then) if isinstance(step, Stop)), len(rule.then))
    told = "; then ".join([*(_step(step, broad, policy) for step in rule.then[:end]), ENDS])
    hidden = [f"; only if it is chosen, {_step(step, broad, policy)}" for step in rule.then[end + 1 :]]
    return f"When a model call fails {_cause(rule, mine, policy)}, {told}{''.join(hidden)}."


def general(policy: Policy) -> list[str]:
    """What holds for every ladder of the policy."""
    steps = [step for rule in policy.failures for step in rule.then]
    told = [_SKIPPED] if any(not isinstance(step, Stop | Consult) for step in steps) else []
    if any(isinstance(step, Retry) and step.least < step.most for step in steps):
        told.append(_ASKED)
    return [*told, _SHOWN] if told else []


def unhandled(policy: Policy) -> str:
    """What failures lead to that no rule is for; "" if there are none."""
    if not policy.failures:
        return "A model call that fails ends the run as failed (`llm_failure`)."
    switching = Switching(policy)
    left = [reason for reason in REASONS if switching.chosen(reason) is None]
    return f"A model call that fails with {_either(left)} ends the run as failed (`llm_failure`)." if left else ""


def _cause(rule: FailureRule, mine: list[str], policy: Policy) -> str:
    if "*" not in rule.reasons:
        return f"with {_either(mine)}"
    others = any(
        reason not in ("*", "host") for other in policy.failures if other is not rule for reason in other.reasons
    )
    return f"for any {'other ' if others else ''}reason{'' if 'host' in rule.reasons else ' but `host`'}"


def _either(names: list[str]) -> str:
    return listed([f"`{name}`" for name in names])


# ---- steps


def _step(step: FailureStep, broad: list[str], policy: Policy) -> str:
    match step:
        case Retry():
            never = f" (but not after {_either(broad)})" if broad else ""
            return f"it is tried again {retries(step)}{never}"
        case Fallback():
            return _fallback(step)
        case Finalize():
            failing = f" (if `{step.using}` fails, {ENDS})" if step.using else ""
            return f"the next model call is the final one, {final_call(step, policy)}{failing}"
        case Consult(name=name):
            return f"the host's function `{name}` chooses one of the steps that follow (the next, if it chooses none)"
        case Stop():
            return ENDS


def retries(step: Retry) -> str:
    """``up to 3 times, after waits that double from 1s, with jitter, 30s at most``."""
    once = step.times == 1
    times = "once" if once else f"up to {step.times} times"
    if step.least == 0:
        return f"{times}, without a wait"
    wait, most = ("a wait" if once else "waits"), duration_text(step.most)
    if step.least == step.most:
        return f"{times}, after {wait} of {most}"
    growing = "of" if once else "that double from"
    jitter = ", with jitter" if step.jitter else ""
    return f"{times}, after {wait} {growing} {duration_text(step.least)}{jitter}, {most} at most"


def _fallback(step: Fallback) -> str:
    names = [f"`{name}`" for name in step.clients]
    which = "that has not been used yet" if step.scope == "run" else "that has not failed in this call"
    first = names[0] if len(names) == 1 else f"the first of {listed(names, 'and')} {which}"
    if step.scope == "call":
        return f"{first} is asked instead, for this call only"
    lasting = "the rest of the run" if step.scope == "run" else f"the next {duration_text(step.ms or 0)}"
    return f"{first} is asked instead, for {lasting}"
