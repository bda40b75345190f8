"""What every verdict about a policy takes for granted, in words: a reader must see what was not looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.core.ladders import Fallback
from engine.core.machine.claim_laws import Promise
from engine.core.machine.plan import Plan
from engine.core.policy import Policy
from engine.verify.verdicts import Verdict


def assumptions(
    policy: Policy,
    plans: Sequence[Plan],
    widest: int,
    sampled: Iterable[str],
    verdicts: Iterable[Verdict],
    promises: Iterable[Promise],
) -> tuple[str, ...]:
    """``widest``: tools of the largest round that was tried; ``sampled``: fields of which not every value was."""
    out = [f"a round has at most {widest} tools"]
    if policy.agents is not None or policy.agent:
        out.append("what others of the tree take and give back is free, and so is what ancestors refuse")
    amounts = [plan.limit.id for plan in plans if not plan.counted]
    if amounts:
        out.append(f"what is left of {', '.join(amounts)} is free in every step: nothing, the reserve, or enough")
    if policy.breakers:
        out.append("a breaker may be open, or closed, in every step")
    if any(isinstance(step, Fallback) for rule in policy.failures for step in rule.then):
        out.append("a run goes to each client once by a `fallback` without `for`: law L13, which a driver keeps")
    times = [classes for promise in promises for classes in promise.amounts if classes.resource == "wall"]
    if any(classes.ends for classes in times):
        out.append("a host comes back when its time is over, and cuts what is in flight: it ends within the grace")
    if few := sorted(set(sampled)):
        out.append(f"not every value of {', '.join(few)} was tried")
    if any(v.kind == "end" or v.says.startswith("within") for v in verdicts):
        out.append("for the length of a run: no provider pauses a turn, and no host makes an attempt again by itself")
    return tuple(out)
