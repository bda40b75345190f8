"""Hypothesis strategies for well-formed policies.

Limits are drawn small, because a random run never comes near a large one.
"""

from __future__ import annotations

from typing import Literal

from hypothesis import strategies as st

from engine.core.policy import (
    Breaker,
    Consult,
    Detector,
    Extend,
    FailureRule,
    FailureStep,
    Fallback,
    Finalization,
    Finalize,
    Limit,
    Policy,
    Price,
    ResourceName,
    Retry,
    ScopeName,
    Step,
    Stop,
    Threshold,
    ToolRule,
)
from engine.core.vocabulary import PREFER_ORDER, RESOURCES

COUNTED: tuple[ResourceName, ...] = ("llm_calls", "tool_iterations", "llm_attempts", "tool_calls", "unknown_tools")
AMOUNTS: tuple[ResourceName, ...] = ("tokens", "input_tokens", "output_tokens", "cost", "wall")

_LADDERS: tuple[tuple[Step, ...], ...] = (
    (),
    (Stop(),),
    (Finalize(),),
    (Finalize(text="Stop now, {used} of {limit} used."),),
    (Extend(by=1), Finalize()),
    (Extend(by=3), Stop()),
    (Extend(by=9),),
)
_ASKING: tuple[tuple[Step, ...], ...] = (
    (Finalize(using="ending"),),
    (Finalize(using="ending"), Finalize(text="Now.")),
    (Finalize(using="ending"), Extend(by=1), Finalize()),
    (Extend(by=2), Finalize(using="ending")),
    (Consult(name="who"), Finalize()),
    (Consult(name="who"), Extend(by=1), Finalize(using="ending"), Finalize()),
    (Extend(by=1), Consult(name="who"), Finalize()),
)


_MAXIMA = (5, 4, 8, 3, 6, 2, 1, 7, 0)
_AMOUNTS = ((100, 20), (100, 0), (200, 50), (40, 10), (40, 40), (10, 0), (1, 1), (0, 0))
_SCOPES: dict[ResourceName, list[ScopeName | None]] = {
    resource: [None, None, *(scope for scope in ("run", "thread", "subtree") if scope in RESOURCES[resource].scopes)]
    for resource in (*COUNTED, *AMOUNTS)
}


@st.composite
def ladders(draw: st.DrawFn, resource: ResourceName, *, asking: bool = True) -> tuple[Step, ...]:
    """A ladder that fits the resource; ``asking``: it may call functions of the host."""
    known = RESOURCES[resource]
    options = [*_LADDERS, *(_ASKING if asking else ())]
    if not known.extendable:
        options = [ladder for ladder in options if not any(isinstance(s, Extend) for s in ladder)]
    return draw(st.sampled_from(options))


@st.composite
def limits(draw: st.DrawFn, resource: ResourceName, largest: int = 8, *, asking: bool = True) -> Limit:
    """A limit with a small maximum. Amounts are such that a few turns use them up."""
    scope = draw(st.sampled_from(_SCOPES[resource]))
    then = draw(ladders(resource, asking=asking))
    if resource in COUNTED:
        atomic = resource == "tool_calls" and draw(st.booleans())
        maximum = draw(st.sampled_from([n for n in _MAXIMA if n <= largest]))
        return Limit(resource=resource, scope=scope, max=maximum, atomic=atomic, then=then)
    maximum, reserve = draw(st.sampled_from(_AMOUNTS))
    if not reserve:
        then = tuple(s for s in then if not isinstance(s, Finalize))
    return Limit(resource=resource, scope=scope, max=maximum, reserve=reserve, then=then)


@st.composite
def finalizations(draw: st.DrawFn, *, plain: bool = False) -> Finalization:
    """How the final call is made; ``plain``: proactive, nothing asked of the host, no empty retries."""
    prefer = tuple(draw(st.lists(st.sampled_from(PREFER_ORDER), max_size=3, unique=True)))
    if plain:
        return Finalization(prefer=prefer)
    tools: Literal["strip", "forbid"] = draw(st.sampled_from(["strip", "forbid"]))
    empties = draw(st.sampled_from([0, 0, 1, 2]))
    if draw(st.booleans()):
        return Finalization(prefer=prefer, tools=tools, empty_retries=empties)
    text, using = draw(st.sampled_from([(None, None), ("No more rounds.", None), (None, "refusal")]))
    return Finalization(prefer=prefer, mode="reactive", text=text, using=using, tools=tools, empty_retries=empties)


_RULES = (
    ToolRule(glob="shell", deny=True),
    ToolRule(glob="dep*", deny=True, deny_text="Not `{tool}`."),
    ToolRule(glob="s*", deny=True),
    ToolRule(glob="search", allow=True),
    ToolRule(glob="search", limit=1),
    ToolRule(glob="*", limit=3, limit_text="{tool}: {limit} at most."),
    ToolRule(glob="f?tch", limit=0),
    ToolRule(glob="*", timeout=5),
)
_ERROR_RULES = (
    ToolRule(glob="*", ask=True, ask_within=20),
    ToolRule(glob="search", ask=True),
    ToolRule(glob="s*", ask=True, ask_within=5),
    ToolRule(glob="shell", allow=True),
    ToolRule(glob="fetch", retry=Retry(times=2, least=1, most=4)),
    ToolRule(glob="*", retry=Retry(times=1, least=0, most=0)),
)

# -- failures and breakers --------------------------------------------------------------------------

_FAILURE_STEPS: tuple[FailureStep, ...] = (
    Retry(times=1, least=1, most=4),
    Retry(times=2, least=0, most=0),
    Retry(times=3, least=2, most=60, jitter=False),
    Fallback(clients=("small", "large", "nobody")),
    Fallback(clients=("large", "small"), scope="call"),
    Fallback(clients=("large",), scope="time", ms=10),
    Finalize(text="The model fails: answer now."),
    Finalize(using="ending"),
    Consult(name="who"),
    Stop(),
)
_REASON_SETS = (("*",), ("rate_limit",), ("provider", "timeout"), ("auth",), ("unknown",), ("host", "content_filter"))


@st.composite
def failures(draw: st.DrawFn) -> tuple[FailureRule, ...]:
    """Some failure ladders, no reason in two of them."""
    reasons = draw(st.lists(st.sampled_from(_REASON_SETS), unique=True, min_size=1, max_size=3))
    ladders = st.lists(st.sampled_from(_FAILURE_STEPS), min_size=1, max_size=4).map(tuple)
    return tuple(FailureRule(reasons=names, then=draw(ladders)) for names in reasons)


_DETECTORS = (
    Detector(kind="same_args", n=2),
    Detector(kind="alternating", n=4),
    Detector(kind="failures", n=1),
    Detector(kind="failures", n=2),
    Detector(kind="failure_rate", n=2, percent=50),
    Detector(kind="same_result", n=2),
    Detector(kind="slow", n=1, ms=5),
)


@st.composite
def breakers(draw: st.DrawFn, *, in_order: bool = False) -> Breaker:
    """A breaker that trips soon; ``in_order``: it does not care when or in which order tools end."""
    among = [x for x in _DETECTORS if not (in_order and x.kind == "slow")]
    trips = draw(st.lists(st.sampled_from(among), min_size=1, max_size=2, unique_by=lambda x: x.kind))
    reset = draw(st.sampled_from([None, 1, 10]))
    opened: list[Literal["skip", "hide", "stop", "finalize"]] = ["skip", "skip", "hide", "stop", "finalize"]
    when_open = draw(st.sampled_from(opened))
    return Breaker(
        glob=draw(st.sampled_from(["*", "s*", "search", "fetch"])),
        trips=tuple(trips),
        reset=reset,
        probe=draw(st.sampled_from([None, 1, 2])) if reset else None,
        when_open=when_open,
        using=draw(st.sampled_from([None, "ending"])) if when_open == "finalize" else None,
        count_denied=draw(st.sampled_from(["nothing", "failure", "success"])),
        per_args=draw(st.booleans()),
        apply="round_end" if in_order else draw(st.sampled_from(["round_end", "round_end", "now"])),
    )


@st.composite
def error_policies(draw: st.DrawFn, largest: int = 8, *, in_order: bool = False) -> Policy:
    """A policy with failure ladders, breakers, people and retries on top of its limits, most of them few.

    ``in_order``: one of which L16 speaks.
    """
    base = draw(policies(largest))
    rules = [rule for rule in _ERROR_RULES if not (in_order and rule.retry)]
    more = draw(st.lists(st.sampled_from(rules), unique_by=id, max_size=2))
    uses: tuple[Threshold, ...] = ()
    if draw(st.integers(0, 3)) == 0:
        uses = (Threshold(percent=50, resource=base.limits[0].resource, action="use", client="large"),)
    return base.model_copy(
        update={
            "failures": draw(failures()) if draw(st.integers(0, 4)) else (),
            "breakers": tuple(draw(st.lists(breakers(in_order=in_order), max_size=2))),
            "tools": (*base.tools, *more),
            "thresholds": (*base.thresholds, *uses),
            "prices": (*base.prices, Price(model="large", input=3_000_000, output=9_000_000)) if base.prices else (),
        }
    )


@st.composite
def policies(draw: st.DrawFn, largest: int = 8) -> Policy:
    """A well-formed policy with limits of at most ``largest``."""
    counted: list[ResourceName] = draw(st.lists(st.sampled_from(COUNTED), unique=True, min_size=1, max_size=3))
    amounts: list[ResourceName] = draw(
        st.lists(st.sampled_from(AMOUNTS), unique=True, max_size=draw(st.integers(0, 2)))
    )
    limited: list[ResourceName] = [*counted, *amounts]
    binding = {limit.id: limit for limit in (draw(limits(r, largest)) for r in limited)}
    second: ResourceName | None = draw(st.sampled_from([None, None, None, *counted]))
    if second:
        other = draw(limits(second, largest))
        binding.setdefault(other.id, other)
    thresholds: tuple[Threshold, ...] = ()
    if draw(st.integers(0, 3)) == 0:
        thresholds = (
            Threshold(percent=50, resource=counted[0], action="warn"),
            Threshold(percent=80, resource=counted[0], action="tell", text="{left} left of {limit}"),
        )
    rules = tuple(draw(st.lists(st.sampled_from(_RULES), unique_by=id, max_size=3))) if draw(st.booleans()) else ()
    prices = (Price(model="small", input=1_000_000, output=2_000_000),) if "cost" in amounts else ()
    return Policy(
        name="drawn",
        limits=tuple(binding.values()),
        finalization=draw(finalizations()),
        thresholds=thresholds,
        tools=rules,
        prices=prices,
    )


@st.composite
def plain_policies(draw: st.DrawFn, largest: int = 8) -> Policy:
    """Proactive, without reserve, empty retries or functions of the host: those of which L12 speaks."""
    counted = draw(st.lists(st.sampled_from(COUNTED), unique=True, max_size=4))
    wanted: list[ResourceName] = sorted({*COUNTED[:2], *counted})
    chosen = tuple(draw(limits(resource, largest, asking=False)) for resource in wanted)
    return Policy(name="plain", limits=chosen, finalization=draw(finalizations(plain=True)))
