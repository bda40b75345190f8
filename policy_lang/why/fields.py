"""What each field of a machine's event says, in English, with its numbers.

One table; a test holds it against every machine. Decides nothing: the numbers are those the field was made from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from engine.core.events import RunStarted
from engine.core.ladders import Fallback, Retry
from engine.core.machine.failure_plan import NEVER_RETRIED_BROADLY, FailurePlan
from engine.core.machine.machine import Machine
from engine.core.machine.plan import ENOUGH, RESERVE, Plan
from engine.core.state import Refusal
from engine.core.switching import wait
from engine.core.texts import duration
from policy_lang.names import listed
from policy_lang.why import breakers
from policy_lang.why.scene import Scene, counted, limit_word, quantity, reasons_word

Fact = Callable[[Scene, int], str]
"""What a value says."""

_ABOVE: Final = "agents above this run"


def _flag(no: str, yes: str) -> Fact:
    return lambda scene, value: yes if value else no


_PLAIN: Final[dict[tuple[str, str], Fact]] = {
    ("resolved", "ok"): _flag("the host's function has not answered", "the host's function has answered"),
    ("extension", "granted"): _flag("nothing is granted", "more is granted"),
    ("failed", "cut"): _flag("the attempt was not cut by the run's own time", "the run's own time has cut the attempt"),
    ("failed", "delivered"): _flag(
        "nothing was shown that cannot be taken back", "text was shown that cannot be taken back"
    ),
    ("failed", "start"): lambda scene, value: f"its ladder is looked at from step {value + 1} on",
    ("paused", "more"): _flag("the call has been paused too often", "the provider may pause the call once more"),
    ("judged", "above"): _flag(
        "no call of the round was too much for the agents above",
        "a call of the round was too much for the agents above",
    ),
    ("tool", "unasked"): _flag("people can be asked", "nobody can be asked in the midst of a round"),
    ("tool_ends", "answer"): _flag("its result is not the answer", "its result is the answer"),
    ("spawn", "queued"): _flag("a slot is free", "all slots are taken"),
}
"""Fields that say no more than yes or no."""


def facts(machine: Machine, plans: tuple[Plan, ...], failures: tuple[FailurePlan, ...]) -> dict[tuple[str, str], Fact]:
    """The words of every field of this machine, by event and field."""
    by_name: dict[str, Fact] = {plan.field: partial(_amount, plan) for plan in plans if not plan.counted}
    by_name |= {f"{plan.fuel}_spent": partial(_spent_before, plan) for plan in plans if plan.counted}
    for failure in failures:
        for place, step in failure.steps():
            if isinstance(step, Retry):
                by_name[failure.fits(place)] = partial(_fits, failure, step)
            elif isinstance(step, Fallback):
                by_name[failure.switch(place)] = partial(_switch, step)
    told: dict[tuple[str, str], Fact] = {}
    for event, kind in machine.events.items():
        for field in kind.fields:
            known = _PLAIN.get((event, field.name)) or _NUMBERED.get(field.name) or by_name.get(field.name)
            if known is not None:
                told[event, field.name] = known
    return told


# ---- amounts, and what ancestors leave


def _amount(plan: Plan, scene: Scene, value: int) -> str:
    """What is left of tokens, money or time, and what would be needed of it."""
    sight, name, resource = scene.looked.sight, limit_word(plan), plan.resource
    assert sight is not None
    amount = next(a for a in scene.core.amounts.limits if a.plan is plan or a.plan.index == plan.index)
    used, maximum = amount.used(sight.book, sight.at), amount.maximum(sight.values)
    kept = amount.kept(sight.values)
    if resource == "wall":
        said = f"{quantity(resource, used)} of {quantity(resource, maximum)} have passed"
        return f"{said}, and the last {quantity(resource, kept)} are kept" if value == RESERVE else said
    need = amount.need(scene.core.amounts.price(sight.model), sight.input_tokens or 0)
    said = f"{name} has {quantity(resource, max(0, maximum - used))} of {quantity(resource, maximum)} left"
    needed = f"the request needs at least {quantity(resource, need)}"
    if value == ENOUGH:
        return f"{said}, and {needed}" if need > 1 else said
    if value == RESERVE:
        return f"{said}, of which {quantity(resource, kept)} are kept for the final call, and {needed}"
    return f"{said}, and {needed}" if maximum > used else said


def _spent_before(plan: Plan, scene: Scene, value: int) -> str:
    name = limit_word(plan)
    return f"earlier runs of the thread have used {value:,} of {plan.maximum:,} of {name}"


def _nothing_above(scene: Scene) -> str:
    """What is said where the ledger has shown nothing of anybody."""
    parent = scene.event.parent if isinstance(scene.event, RunStarted) else scene.before.book.run.parent
    return "no agent is above this run" if parent is None else f"{_ABOVE} limit nothing"


def _late_above(scene: Scene, value: int) -> str:
    pools = scene.before.book.pools
    if pools is None or pools.wall is None:
        return _nothing_above(scene) if pools is None else f"no time of {_ABOVE} is limited"
    limit = pools.wall.limit
    said = f"the {quantity('wall', limit.maximum)} of {limit.owner}"
    if value:
        return f"{said} are over"
    return f"{said} go on for {duration(pools.deadline - scene.at)} more"


def _above(scene: Scene, value: int) -> str:
    pools = scene.before.book.pools
    if pools is None:
        return _nothing_above(scene)
    refusal = pools.rounds if scene.kind == "round" else pools.refused
    if scene.kind == "tool":
        return _tools_above(scene, value)
    if value and refusal is not None:
        return refusal_words(refusal)
    return f"{_ABOVE} leave enough"


def _tools_above(scene: Scene, value: int) -> str:
    pools = scene.before.book.pools
    if pools is None or pools.tools is None:
        return _nothing_above(scene) if pools is None else f"no tool calls of {_ABOVE} are limited"
    before = f", with {counted(scene.running, 'call')} of this round before it" if scene.running else ""
    if value and pools.tools_limit is not None:
        return f"{refusal_words(pools.tools_limit)}{before}"
    return f"{_ABOVE} leave {counted(pools.tools, 'tool call')}{before}"


def refusal_words(refusal: Refusal) -> str:
    """What refuses, whose it is, and how much of it is used."""
    limit, resource = refusal.limit, refusal.limit.resource
    if not limit.maximum and not limit.used:
        return f"{limit.owner} is {resource}"
    aside = f", {quantity(resource, limit.set_aside)} of that set aside for agents" if limit.set_aside else ""
    used = f"{quantity(resource, limit.used)} of {quantity(resource, limit.maximum)}"
    return f"of `{resource}` of {limit.owner} {used} are taken{aside}"


# ---- failures


def _ladder(scene: Scene, value: int) -> str:
    """Which rule is for the failure."""
    reason = scene.failure().reason
    if not value:
        return f"the failure is `{reason}`, for which no rule is written"
    rule = scene.core.switching.plans[value - 1].rule
    return f"the failure is `{reason}`, and the rule for {reasons_word(rule.reasons)} is its own"


def _fits(failure: FailurePlan, step: Retry, scene: Scene, value: int) -> str:
    why, chosen = scene.failure(), scene.core.switching.chosen(scene.failure().reason)
    if value:
        return "its wait ends in time"
    if chosen is None or chosen.plan.index != failure.index:
        return f"the rule is not for `{why.reason}`"
    if chosen.broad and why.reason in NEVER_RETRIED_BROADLY:
        return f"`{why.reason}` is cured by no further attempt, and no rule names it"
    place = failure.rule.then.index(step)
    left = scene.looked.reaction.variables[failure.retries(place)]
    return f"its wait of {duration(wait(step, step.times - left, why))} does not end before the run's time is over"


def _switch(step: Fallback, scene: Scene, value: int) -> str:
    book, call = scene.before.book, scene.before.call
    if value:
        return "it has a client to go to"
    known = {client.name for client in book.run.clients}
    said = []
    for name in step.clients:
        if name not in known:
            said.append(f"the host has no client `{name}`")
        elif (call is not None and name == call.client) or name in book.exchange:
            said.append(f"`{name}` has failed in this exchange")
        elif step.scope == "run" and name in book.switched:
            said.append(f"`{name}` was used in this run before")
        else:
            said.append(f"a call of `{name}` was not admitted")
    return listed(said, "and")


# ---- tool calls


def _unknown(scene: Scene, value: int) -> str:
    return f"nobody has registered {scene.tool()}" if value else f"{scene.tool()} is a tool of the host"


def _invalid(scene: Scene, value: int) -> str:
    if not value:
        return "its arguments are valid"
    problem = scene.call.problem if scene.call is not None else ""
    return f"its arguments are not valid ({problem})" if problem else "its arguments are not valid"


def _denied(scene: Scene, value: int) -> str:
    return f"a rule denies {scene.tool()}" if value else f"no rule denies {scene.tool()}"


def _limited(scene: Scene, value: int) -> str:
    limits = scene.core.tools.facts(scene.call.name).limits if scene.call is not None else ()
    if not limits:
        return f"{scene.tool()} has no limit of its own"
    told = [f"{min(scene.counts[k], most):,} of {most:,}" for k, most, _, _ in limits]
    return f"of its own limit {' and of another '.join(told)} are used"


def _broken(scene: Scene, value: int) -> str:
    call = scene.call
    if call is None:
        return "an open breaker switches it off" if value else "no open breaker is why"
    if scene.kind != "tool" and not value:
        return "no open breaker is why"
    return breakers.seen_of(scene.core, scene.before, call.name, call.args, scene.at, call.kind)


def _asks(scene: Scene, value: int) -> str:
    return f"a rule asks a person about {scene.tool()}" if value else f"no rule asks a person about {scene.tool()}"


def _no_time(scene: Scene, value: int) -> str:
    return "what time is left is kept for the final call" if value else "there is time beside what is kept"


def _round_refused(scene: Scene, value: int) -> str:
    if not value:
        return "no limit refuses the round as a whole"
    return f"{limit_word(scene.core.plans[value - 1])} does not leave enough for the round as a whole"


def _crowded(scene: Scene, value: int) -> str:
    if not value:
        return "every call of the round fits, or is answered without a person"
    return f"a call of the round does not fit {limit_word(scene.core.plans[value - 1])}"


# ---- answers


def _chosen(scene: Scene, value: int) -> str:
    return f"the host's function has chosen step {value} of the ladder" if value else "it has chosen no later step"


def _granted_amount(scene: Scene, value: int) -> str:
    return f"{value:,} are granted" if value else "the whole of it is granted"


def _refused(scene: Scene, value: int) -> str:
    refusal = getattr(scene.event, "refused", None)
    return refusal_words(refusal) if value and refusal is not None else "no limit of the tree refuses it"


_NUMBERED: Final[dict[str, Fact]] = {
    "late_above": _late_above,
    "above": _above,
    "ladder": _ladder,
    "chosen": _chosen,
    "amount": _granted_amount,
    "crowded": _crowded,
    "unknown": _unknown,
    "invalid": _invalid,
    "denied": _denied,
    "limited": _limited,
    "broken": _broken,
    "asks": _asks,
    "no_time": _no_time,
    "round_refused": _round_refused,
    "refused": _refused,
}
"""Fields that tell more where there is more."""
