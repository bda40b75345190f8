"""Hypothesis strategies for a suite of your own: policies, turns of a model, whole worlds, runs, hostile events.

What makes random tests find faults: they draw turns and not events, so that every example is a run; what ends a run
comes last, and failures are rare (one turn of ten), because a run that ends at once tests nothing; limits are small,
because a random run never comes near a large one. Where a policy's own limits are large, ``scale="down"`` makes them
small, and exploration is for the large ones.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from hypothesis import strategies as st

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Extend, Limit, Policy
from engine.core.state import STARTED, ClientInfo
from engine.core.step import Compiled, compile
from engine.testing import drawn_policies, drawn_worlds
from engine.testing.drawn_events import hostile_events
from engine.testing.host import Host, Step
from engine.testing.scripts import ANSWER, ResolverStatus, Tool, Turn, World
from engine.testing.witnesses import explore

Scale = Literal["down", "as-is"]

LARGEST = 8
"""The largest limit of ``scale="down"``; amounts become such that a few turns use them up."""

_FAILS, _ODD = 9, 8
"""Of ten turns (0 to 9), those from 9 on fail, and those from 8 on are odd."""

_TIMES = (1, 1, 1, 1, 2, 5)
"""How often a turn comes in a row: ladders and breakers are about what comes again."""

_BUSY = Turn(finish="tool_calls")


def policies(largest: int = LARGEST) -> st.SearchStrategy[Policy]:
    """Well-formed policies with limits of at most ``largest``: with and without failure ladders, breakers, people."""
    return st.one_of(drawn_policies.policies(largest), drawn_policies.error_policies(largest))


@st.composite
def turns(draw: st.DrawFn, tools: tuple[str, ...] = ("search", "fetch", "shell"), *, unknown: bool = True) -> Turn:
    """One attempt of a model that goes on: it asks for tools, also in the final call; or (one of ten) fails, or (one of
    ten) is odd: empty, cut short, paused.

    ``tools`` are the names it asks for; ``unknown``: and sometimes for one that nobody registered. It does not answer:
    that ends a run, and comes last in a world.
    """
    kind = draw(st.integers(0, 9))
    if kind >= _FAILS:
        return draw(st.sampled_from(drawn_worlds.failing_turns()))
    if kind >= _ODD:
        return draw(st.sampled_from(drawn_worlds.odd_turns()))
    shape = draw(st.sampled_from(drawn_worlds.busy_turns()))
    asked = draw(st.lists(_tools(tools, unknown), min_size=1, max_size=3))
    return replace(shape, tools=tuple(asked), stubborn=shape.stubborn or draw(st.integers(0, 3)) == 3)


_LAST = (
    *(ANSWER,) * 3,
    Turn(),
    Turn(finish="length"),
    replace(_BUSY, tools=(Tool("search"),), interrupt_tools="cancel"),
    replace(_BUSY, tools=(Tool("search"), Tool("fetch")), interrupt="cancel"),
)
"""What ends a run."""


@st.composite
def _tools(draw: st.DrawFn, names: tuple[str, ...], unknown: bool) -> Tool:
    tool = draw(st.sampled_from(drawn_worlds.busy_tools()))
    if not tool.registered:
        return tool if unknown else replace(tool, registered=True, name=names[0])
    return replace(tool, name=draw(st.sampled_from(names)))


@st.composite
def worlds(
    draw: st.DrawFn,
    tools: tuple[str, ...] = ("search", "fetch", "shell"),
    *,
    clients: tuple[str, ...] = (),
    least: int = 2,
    most: int = 14,
    unknown: bool = True,
) -> World:
    """A scripted model with its tools and people: ``least`` to ``most`` turns, some of them again and again, and behind
    them one that ends the run: mostly an answer.

    ``clients`` are those that the host can route to by name. Functions of the host answer in most cases.
    """
    drawn = st.tuples(turns(tools, unknown=unknown), st.sampled_from(_TIMES))
    body = [turn for turn, times in draw(st.lists(drawn, min_size=least, max_size=most)) for _ in range(times)]
    statuses: st.SearchStrategy[ResolverStatus] = st.sampled_from(("ok", "ok", "ok", "empty", "failed"))
    return World(
        turns=(*body, draw(st.sampled_from(_LAST))),
        resolver=(draw(statuses),),
        advice=(draw(st.sampled_from(drawn_worlds.ADVICE)),),
        grants=(draw(st.sampled_from((-1, 0, 1, 3))),),
        clients=tuple(ClientInfo(name, "small") for name in clients),
    )


@dataclass(frozen=True)
class Trace:
    """A run of ``policy``, which has smaller limits than it was given with ``scale="down"``; ``world`` was played."""

    policy: Policy
    world: World
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        """Short: the turns, which Hypothesis shrinks, and the limits."""
        limits = ", ".join(f"{limit.id} {limit.max}" for limit in self.policy.limits)
        turns = ", ".join(_short(turn) for turn in self.world.turns)
        return f"Trace({self.policy.name}: {limits or 'no limits'}; {len(self.steps)} events; turns: {turns})"


def _short(value: Any) -> str:
    """A turn or a tool with what is not as always."""
    told = []
    for one in fields(value):
        item = getattr(value, one.name)
        if item != one.default:
            inner = ", ".join(map(_short, item)) if one.name == "tools" else repr(item)
            told.append(f"{one.name}=({inner})" if one.name == "tools" else f"{one.name}={inner}")
    return f"{type(value).__name__}({', '.join(told)})"


class _Late(Host):
    """A host that asks for more while the run is being stopped, and after its end. It obeys what it is told then."""

    def stop(self, decision: d.Stop) -> d.AnyDecision:
        """Ask once more, then as ever."""
        self.calls += 1
        self._ask(e.CallRequested(self.at, str(self.calls), "main", self.world.model))
        return super().stop(decision)

    def late(self) -> None:
        """Ask for everything once more."""
        self._ask(e.CallRequested(self.at, str(self.calls + 1), "main", self.world.model))
        self._ask(e.Cancelled(self.at))

    def _ask(self, event: e.AnyEvent) -> None:
        before = self.state
        self.state, decision = self.compiled.step(before, event)
        self.steps.append(Step(event, decision, before, self.state))


@st.composite
def traces(
    draw: st.DrawFn,
    policy: Policy,
    *,
    scale: Scale = "down",
    goal: str = "",
    tools: tuple[str, ...] = ("search", "fetch", "shell"),
    compiled: Compiled | None = None,
) -> Trace:
    """Runs of a policy in drawn worlds, played on ``step`` (or on that of ``compiled``, which is to be tested).

    ``scale="down"`` draws limits of at most 8 in place of larger ones. ``goal`` is the id of a rule
    (``explore(policy).reachable``): the run begins with a shortest one to it, at the policy's own limits, and goes on
    from there as drawn. ``ValueError`` if no run comes to the rule.
    """
    ready = compiled
    if scale == "down" and not goal and compiled is None:
        policy = draw(scaled(policy))
    ready = ready or compile(policy)
    world = draw(worlds((*tools, *_named(policy)), clients=policy.clients(), least=0 if goal else 2))
    host = _Late(ready, world)
    if goal:
        _seeded(host, policy, goal)
    else:
        host.run()
    host.late()
    return Trace(policy, world, tuple(host.steps))


@st.composite
def scaled(draw: st.DrawFn, policy: Policy, largest: int = LARGEST) -> Policy:
    """The policy with limits of at most ``largest`` (amounts: a few turns). What is small already stays as it is."""
    return policy.model_copy(update={"limits": tuple(draw(_small(limit, largest)) for limit in policy.limits)})


@st.composite
def _small(draw: st.DrawFn, limit: Limit, largest: int) -> Limit:
    counted = limit.resource in drawn_policies.COUNTED
    most = largest if counted else 200
    if limit.max is None or limit.max <= most:
        return limit
    maximum = draw(st.integers(1, most) if counted else st.sampled_from((40, 100, 200)))
    reserve = limit.reserve * maximum // limit.max
    reserve = max(1, reserve) if limit.reserve else 0
    then = tuple(
        step.model_copy(update={"by": max(1, step.by * maximum // limit.max)}) if isinstance(step, Extend) else step
        for step in limit.then
    )
    return limit.model_copy(update={"max": maximum, "reserve": reserve, "then": then})


def _named(policy: Policy) -> tuple[str, ...]:
    """Names of tools that the policy's rules are about."""
    globs = [*(rule.glob for rule in policy.tools), *(breaker.glob for breaker in policy.breakers)]
    return tuple(dict.fromkeys(glob.replace("*", "x").replace("?", "a") for glob in globs if glob != "*"))


def _seeded(host: Host, policy: Policy, goal: str) -> None:
    """Play a shortest run to the goal, and go on from there."""
    last: d.AnyDecision = d.Continue()
    for played in explore(policy).witness(goal):
        last = host.send(played.event)
        host.at = max(host.at, played.event.at)
        host.calls += isinstance(played.event, e.CallRequested)
        if isinstance(played.event, e.ModelReplied):
            host.rounds += bool(played.event.calls)
            host.tools = {call.id: Tool(call.name) for call in played.event.calls}
    host.attempts = {call.id: call.attempt for call in host.state.round if call.status == STARTED}
    if not isinstance(last, d.Call | d.Retry | d.Continue | d.Resolve | d.Suspend | d.Stop | d.End):
        last = host.send(e.Cancelled(host.at))
    while not host.ended:
        last = host.follow(last)


__all__ = ["Trace", "hostile_events", "policies", "scaled", "traces", "turns", "worlds"]
