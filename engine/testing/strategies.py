"""Hypothesis strategies: well-formed policies with small limits, and worlds drawn turn by turn.

Limits are drawn small, because a random run never comes near a large one. What ends a run is rare
and late in a world, because a run that ends at once tests nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_args

from hypothesis import strategies as st

from engine.core import events as e
from engine.core.host import FULL
from engine.core.messages import Finish, Usage
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
from engine.core.state import ClientInfo, Used
from engine.core.vocabulary import PREFER_ORDER, REASONS, RESOURCES
from engine.testing.worlds import ANSWER, ResolverStatus, Tool, Turn, World

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


# -- worlds -----------------------------------------------------------------------------------------

_USAGES = (Usage(3, 2), Usage(0, 0), Usage(9, 1, 9), Usage(1, 9, 0, 1, 4), Usage(20, 20), Usage(0, 5))


def usages() -> st.SearchStrategy[Usage]:
    """A few tokens."""
    return st.sampled_from(_USAGES)


_QUIET_TOOLS = (
    Tool("search"),
    Tool("search", rank=2),
    Tool("fetch", rank=1),
    Tool("fetch", status="failed"),
    Tool("shell"),
    Tool("deploy", status="timed_out", rank=3),
    Tool("deploy", status="cancelled", rank=1),
    Tool("nobody", registered=False),
    Tool("search", problem="not a number"),
)
_ORDINARY_TOOLS = (
    *_QUIET_TOOLS,
    Tool("fetch", status="unknown"),
    Tool("shell", usage=Usage(2, 5), rank=2),
    Tool("search", restarts=1),
    Tool("fetch", restarts=2, rank=1),
    Tool("shell", kind="hosted"),
)
_TOOLS = (
    *_ORDINARY_TOOLS * 3,
    Tool("search", "output"),
    Tool("search", ends="answer"),
    Tool("fetch", ends="stop", rank=1),
)


def tools(*, quiet: bool = False) -> st.SearchStrategy[Tool]:
    """A tool call: most are ordinary; ``quiet``: it never ends the run, uses no tokens, is never asked for twice."""
    return st.sampled_from(_QUIET_TOOLS if quiet else _TOOLS)


_ROUND = Turn(finish="tool_calls")
_QUIET_ROUNDS = (
    _ROUND,
    replace(_ROUND, text=True),
    replace(_ROUND, usage=Usage(9, 1, 9), together=False),
    replace(_ROUND, takes=1),
    replace(_ROUND, takes=7, together=False),
    replace(_ROUND, usage=Usage(20, 20), reports=(Usage(20, 4), Usage(20, 12))),
    replace(_ROUND, usage=Usage(1, 9), reports=(Usage(1, 0),), estimated=True),
)
_ROUNDS = (
    *_QUIET_ROUNDS * 2,
    replace(_ROUND, stubborn=True),
    replace(_ROUND, stubborn=True, text=True),
    replace(_ROUND, lost=1),
    replace(_ROUND, lost=2, takes=1),
    replace(_ROUND, interrupt="tick"),
    replace(_ROUND, interrupt_tools="tick", takes=7),
    replace(_ROUND, interrupt_tools="cancel"),
    replace(_ROUND, interrupt="cancel"),
    replace(_ROUND, usage=None),
    replace(_ROUND, finish="length"),
    replace(_ROUND, finish="pause"),
    replace(_ROUND, retold=True, reports=(Usage(1, 1),)),
    replace(_ROUND, untold=True),
    replace(_ROUND, untold=True, takes=1),
)
_ODD = (
    Turn(finish="pause"),
    Turn(finish="pause", lost=1),
    Turn(),
    Turn(usage=None),
    Turn(retold=True),
    Turn(finish="pause", text=True, retold=True, reports=(Usage(2, 1),)),
    Turn(lost=1, takes=7),
    Turn(finish="length"),
    Turn(finish="content_filter"),
    Turn(text=True, finish="length"),
    Turn(tools=(Tool("shell", kind="hosted"),), finish="pause"),
    Turn(tools=(Tool("shell", kind="hosted"),) * 2, text=True),
)
_FAILURES = tuple(Turn(failure=reason, partial=p) for reason in REASONS for p in ("none", "held", "delivered"))


@st.composite
def turns(draw: st.DrawFn, *, quiet: bool = False) -> Turn:
    """One attempt: most ask for tools; those that fail, or answer, or are odd, are rare."""
    shape = 0 if quiet else draw(st.integers(0, 31))
    if shape == 31:
        return draw(st.sampled_from(_FAILURES))
    if shape >= 28:
        return draw(st.sampled_from(_ODD))
    if shape == 27:
        return replace(ANSWER, usage=draw(usages()))
    turn = draw(st.sampled_from(_QUIET_ROUNDS if quiet else _ROUNDS))
    asked = draw(st.lists(tools(quiet=quiet), min_size=1, max_size=4))
    return replace(turn, tools=tuple(asked))


_BEFORE = (None, None, None, Used(1, 1, 1, 1, 1, 5, 5, cost=9), Used(2, 3, 1, 4, 0, 20, 9), Used(9, 9, 9, 9, 9, 90, 90))


_ERROR_TOOLS = (
    Tool("search", status="failed"),
    Tool("search", status="failed", args="other"),
    Tool("fetch", status="failed", recovers=2),
    Tool("fetch", status="timed_out", rank=1),
    Tool("search", result="same"),
    Tool("search", status="cancelled"),
    Tool("search", answer="refused"),
    Tool("search", answer="expired", rank=1),
    Tool("shell", answer="nobody"),
    Tool("search", status="failed", edited="other"),
    Tool("shell", edited="other"),
)
_WAITS: tuple[tuple[int | None, int], ...] = ((None, 0), (None, 999), (3, 500), (50, 0), (10_000, 1))
_ADVICE = ("", "retry", "fallback", "finalize", "extend", "stop", "consult")


@st.composite
def error_worlds(draw: st.DrawFn, *, quiet: bool = False) -> World:
    """A world in which models and tools fail, people answer, and the host has clients."""
    base = draw(worlds(quiet=quiet))
    turns = list(base.turns)
    for place in range(len(turns)):
        shape = draw(st.integers(0, 3))
        if shape == 0:
            after, jitter = draw(st.sampled_from(_WAITS))
            failed = draw(st.sampled_from(_FAILURES))
            turns[place] = replace(failed, retry_after=after, jitter=jitter, usage=turns[place].usage)
        elif shape < 3:
            tools = draw(st.lists(st.sampled_from(_ERROR_TOOLS), min_size=1, max_size=3))
            takes = 0 if quiet else draw(st.sampled_from([0, 0, 3, 7]))
            turns[place] = replace(_ROUND, tools=tuple(tools), takes=takes, patient=draw(st.booleans()))
    known = (ClientInfo("small", "small"), ClientInfo("large", "large", 16))
    advice = draw(st.lists(st.sampled_from(_ADVICE), min_size=1, max_size=3))
    return replace(
        base,
        turns=tuple(turns),
        advice=tuple(advice),
        clients=draw(st.sampled_from([known, known, known[1:], ()])),
        retracts=draw(st.booleans()),
    )


@st.composite
def worlds(draw: st.DrawFn, *, quiet: bool = False) -> World:
    """A whole world. ``quiet``: nothing fails, is interrupted, retried or asked for again by the host."""
    statuses: st.SearchStrategy[ResolverStatus] = st.sampled_from(["ok", "ok", "empty", "failed", "timed_out"])
    return World(
        turns=tuple(draw(st.lists(turns(quiet=quiet), min_size=2, max_size=12))),
        resolver=tuple(draw(st.lists(statuses, min_size=1, max_size=2))),
        model="small",
        input_tokens=draw(st.sampled_from([None, 0, 5, 30])),
        max_output=draw(st.sampled_from([None, 8])),
        before=None if quiet else draw(st.sampled_from(_BEFORE)),
        stuck=not quiet and draw(st.booleans()),
        early=not quiet and draw(st.integers(0, 4)) == 4,
    )


# -- hosts that break the protocol ------------------------------------------------------------------

_CALLS = st.sampled_from(["1", "2", "3", "9"])
_TOOL_IDS = st.sampled_from(["1.0", "1.1", "2.0", "2.1", "x"])
_ATTEMPTS = st.integers(0, 3)
_TIMES = st.sampled_from([0, 1, 2, 10, 50, 5_000, 5_100])


_KINDS: list[Literal["function", "output", "hosted"]] = ["function", "function", "function", "hosted", "output"]


@st.composite
def proposals(draw: st.DrawFn) -> e.Proposed:
    """One proposed call with an id from a small pool, perhaps one that was used before."""
    kind = draw(st.sampled_from(_KINDS))
    name, known = draw(st.sampled_from([("search", True), ("shell", True), ("nobody", False)]))
    return e.Proposed(draw(_TOOL_IDS), name, "", kind, known, draw(st.sampled_from(["", "", "", "bad"])))


def hostile_events() -> st.SearchStrategy[e.AnyEvent]:
    """Any event about anything, at any time: most of them illegal wherever they come."""
    usage = st.one_of(st.none(), usages())
    answered = st.lists(_TOOL_IDS, max_size=3).map(tuple)
    replied = st.builds(
        e.ModelReplied,
        at=_TIMES,
        call=_CALLS,
        attempt=_ATTEMPTS,
        finish=st.sampled_from(get_args(Finish)),
        text=st.booleans(),
        calls=st.lists(proposals(), max_size=3, unique_by=lambda p: p.id).map(tuple),
        usage=usage,
    )
    failed = st.builds(
        e.ModelFailed,
        at=_TIMES,
        call=_CALLS,
        attempt=_ATTEMPTS,
        reason=st.sampled_from([*REASONS, "?"]),
        partial=st.sampled_from(["none", "none", "delivered"]),
        retry_after=st.sampled_from([None, 7]),
        usage=usage,
    )
    answers: st.SearchStrategy[Any] = st.sampled_from(["granted", "granted", "refused", "expired", "nobody"])
    statuses: st.SearchStrategy[Any] = st.sampled_from(["failed", "timed_out", "cancelled", "denied"])
    ends: st.SearchStrategy[Any] = st.sampled_from(["", "", "answer", "stop"])
    return st.one_of(
        st.builds(
            e.RunStarted,
            at=_TIMES,
            run=st.sampled_from(["run", "other"]),
            profile=st.sampled_from([FULL, ()]),
            clients=st.sampled_from([(), (ClientInfo("large", "large"),)]),
        ),
        st.builds(e.CallRequested, at=_TIMES, call=_CALLS, model=st.sampled_from(["small", "?"]), answered=answered),
        st.builds(e.Resolved, at=_TIMES, name=st.just("ending"), status=st.sampled_from(["ok", "failed"])),
        replied,
        failed,
        st.builds(e.RetryDue, at=_TIMES, call=_CALLS),
        st.builds(e.ToolRequested, at=_TIMES, id=_TOOL_IDS),
        st.builds(e.ToolEnded, at=_TIMES, id=_TOOL_IDS, attempt=_ATTEMPTS, ends=ends, usage=usage),
        st.builds(e.UsageReported, at=_TIMES, call=_CALLS, attempt=_ATTEMPTS, usage=usages()),
        st.builds(e.Resolved, at=_TIMES, name=st.just("who"), step=st.sampled_from(_ADVICE)),
        st.builds(
            e.ApprovalGiven, at=_TIMES, id=_TOOL_IDS, answer=answers, args=st.sampled_from([None, None, "other"])
        ),
        st.builds(e.ToolEnded, at=_TIMES, id=_TOOL_IDS, attempt=_ATTEMPTS, status=statuses),
        st.builds(e.Tick, at=_TIMES),
        st.builds(e.Cancelled, at=_TIMES),
    )
