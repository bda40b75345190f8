"""The few words that stand on arrows and in boxes: what of a limit, a failure, a breaker or a tool is told there.

Shorter than ``explain``, and never in contradiction to it. Decides nothing.
"""

from __future__ import annotations

from typing import Final

from engine.core.ladders import Consult, Fallback, Finalize, Retry, Stop
from engine.core.machine.failure_plan import Occasion
from engine.core.machine.plan import Plan
from engine.core.policy import (
    Ask,
    Breaker,
    Detector,
    Extend,
    FailureRule,
    FailureStep,
    Policy,
    Threshold,
    ToolRule,
)
from engine.core.vocabulary import RESOURCES
from policy_lang.explain_words import NOUNS, amount
from policy_lang.names import listed
from policy_lang.quantities import duration_text

_SHORT: Final = {
    "llm_calls": ("model call", "model calls"),
    "llm_attempts": ("request", "requests"),
    "tool_iterations": ("round of tools", "rounds of tools"),
    "tool_calls": ("tool call", "tool calls"),
    "unknown_tools": ("call of an unknown tool", "calls of unknown tools"),
}
_SCOPES: Final = {
    "run": " in one run",
    "thread": " in the whole thread",
    "subtree": ", agents included",
    "node": ", agents left out",
}


def maximum(plan: Plan, position: int) -> int:
    """What a limit allows once its ladder stands at a step: with the extension before it, without what people grant."""
    extension = plan.extension()
    return plan.maximum + (extension[1] if extension and extension[0] < position else 0)


def _scope(plan: Plan) -> str:
    chosen = plan.limit.scope
    return _SCOPES[chosen or "run"] if chosen != RESOURCES[plan.resource].scope else ""


def _granted(plan: Plan, position: int) -> str:
    """What people may have added by then, where the ladder asks them before."""
    asked = plan.question()
    return " and what was granted" if asked and asked[0] < position else ""


def much(plan: Plan, value: int) -> str:
    """``5 rounds of tools``, ``200k tokens``, ``$2.50``."""
    if plan.resource in _SHORT:
        return f"{value} {_SHORT[plan.resource][value != 1]}"
    noun = NOUNS[plan.resource]
    return f"{amount(plan.resource, value)} {noun.one if value == 1 else noun.many}".rstrip()


def used_up(plan: Plan, position: int = 0) -> str:
    """Nothing more fits: why a run ends, or a person or the host is asked."""
    most, scope, granted = maximum(plan, position), _scope(plan), _granted(plan, position)
    if plan.resource == "wall":
        return f"{amount('wall', most)} are over{scope}"
    if most == 0:
        return f"no {_SHORT.get(plan.resource, ('', NOUNS[plan.resource].many or 'money'))[1]} allowed{scope}"
    if plan.resource in ("tool_iterations", "tool_calls", "unknown_tools"):
        return f"more than {much(plan, most)}{granted}{scope}"
    return f"{much(plan, most)}{granted} used up{scope}"


def last_one(plan: Plan, position: int, *, reactive: bool) -> str:
    """Why the next call is the final one."""
    most, scope = maximum(plan, position), _scope(plan)
    if plan.resource in ("llm_calls", "llm_attempts"):
        return f"the only {_SHORT[plan.resource][0]}{scope}" if most == 1 else f"the last of {much(plan, most)}{scope}"
    if not plan.counted:
        left = amount(plan.resource, plan.limit.reserve)
        return f"{left} of {much(plan, most)} left{scope}"
    if most == 0 or (reactive and plan.resource != "unknown_tools"):
        return used_up(plan, position)
    return f"after {much(plan, most)}{_granted(plan, position)}{scope}"


def more(plan: Plan, step: Extend) -> str:
    """What an extension grants."""
    return amount(plan.resource, min(step.by, plan.maximum))


def extended(plan: Plan, step: Extend) -> str:
    """A limit grows by itself."""
    return f"{much(plan, plan.maximum)}{_scope(plan)}, then {more(plan, step)} more, once"


def asked(plan: Plan, position: int, step: Ask) -> str:
    """A person may let a limit grow."""
    by = amount(plan.resource, step.up_to or plan.maximum)
    times = "" if step.times == 1 else ", twice" if step.times == 2 else f", {step.times} times"
    return f"{used_up(plan, position)}: a person may grant {by} more{times}"


def consulted(plan: Plan, position: int, step: Consult) -> str:
    """The host's function chooses what happens at a limit."""
    when = (
        used_up(plan, position)
        if plan.resource not in ("llm_calls", "llm_attempts")
        else last_one(plan, position, reactive=False)
    )
    return f"{when}: {step.name}() chooses"


# ---- failed calls


def reasons(rule: FailureRule, policy: Policy) -> str:
    """Which failures a rule is for."""
    if "*" in rule.reasons:
        alone = len(policy.failures) == 1 and len(rule.reasons) == 1
        return "any failure" if alone else "any other failure"
    return listed(list(rule.reasons))


def retried(step: Retry) -> str:
    """How often what failed is tried again."""
    times = "again, once" if step.times == 1 else f"again, up to {step.times} times"
    if step.most == 0:
        return times
    least, most = duration_text(step.least), duration_text(step.most)
    return f"{times}, after {least}" if least == most else f"{times}, after {least} to {most}"


def fallback(step: Fallback) -> str:
    """Which clients are asked instead, and for how long."""
    chain = ", then ".join(step.clients)
    lasting = {"call": " for this call", "time": f" for {duration_text(step.ms or 0)}"}.get(step.scope, "")
    return f"{chain}{lasting}"


def failure_step(step: FailureStep) -> str:
    """One step of a failure's ladder."""
    match step:
        case Retry():
            return retried(step)
        case Fallback():
            return f"on with {fallback(step)}"
        case Finalize():
            return "the final call"
        case Consult(name=name):
            return f"{name}() chooses"
        case Stop():
            return "the end"


def occasion(found: Occasion, policy: Policy, position: int) -> str:
    """Why the next call is the final one, whatever it was."""
    if found.plan is not None:
        return last_one(found.plan, position, reactive=policy.finalization.mode == "reactive")
    if found.failure is not None:
        return f"{reasons(found.failure.rule, policy)}, in the end"
    return "a tool is switched off and asked for"


# ---- tools, breakers, thresholds


def breaker(rule: Breaker) -> str:
    """When a tool is switched off, and for how long."""
    when = listed([_trip(detector) for detector in rule.trips])
    back = "" if rule.reset is None else f", for {duration_text(rule.reset)}"
    what = "switched off for those arguments" if rule.per_args else "switched off"
    return f"{rule.glob}: {what} after {when}{back}"


def _trip(detector: Detector) -> str:
    n = detector.n
    match detector.kind:
        case "same_args":
            return f"{n} equal failures in a row" if n > 1 else "a failure"
        case "alternating":
            return f"{n} failures to and fro"
        case "failures":
            return f"{n} failures in a row" if n > 1 else "a failure"
        case "failure_rate":
            return f"{detector.percent}% of {n} failed"
        case "same_result":
            return f"{n} equal results in a row" if n > 1 else "a result"
        case "slow":
            return f"{n} of {duration_text(detector.ms or 0)} or longer in a row"


def tool(rule: ToolRule) -> str:
    """What holds for the tools of a pattern."""
    clauses = []
    if rule.allow:
        clauses.append("allowed")
    if rule.deny:
        clauses.append("never runs")
    if rule.ask:
        within = f" within {duration_text(rule.ask_within)}" if rule.ask_within else ""
        clauses.append(f"only if a person allows it{within}")
    if rule.limit is not None:
        clauses.append(f"at most {rule.limit} {'run' if rule.limit == 1 else 'runs'}")
    if rule.timeout is not None:
        clauses.append(f"{duration_text(rule.timeout)} each")
    if rule.retry is not None:
        clauses.append(f"if it fails, {retried(rule.retry)}")
    return f"{rule.glob}: {', '.join(clauses)}"


def threshold(rule: Threshold) -> str:
    """What happens on the way to a limit."""
    does = {"warn": "a warning", "tell": f"the model is told: {rule.text}", "use": f"on with {rule.client}"}
    of = {"wall": "the time", "cost": "the money"}.get(rule.resource) or NOUNS[rule.resource].many
    return f"at {rule.percent}% of {of}: {does[rule.action]}"
