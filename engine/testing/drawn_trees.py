"""Hypothesis strategies for policies of trees: limits on the tree, shared and carved pools, blocks of agents."""

from __future__ import annotations

from hypothesis import strategies as st

from engine.core.policy import (
    AgentRules,
    Agents,
    FailureRule,
    Finalize,
    Limit,
    Policy,
    Price,
    ResourceName,
    ScopeName,
    Threshold,
    ToolRule,
    TreeLimit,
    TreeResourceName,
)
from engine.core.vocabulary import RESOURCES
from engine.testing.drawn_policies import COUNTED, limits, policies
from engine.testing.drawn_questions import asking_policies

AGENTS = ("explore", "reader")
"""Agents that drawn policies may have rules for; an agent of any other name has no block."""

_MAXIMA: dict[TreeResourceName, tuple[int | None, ...]] = {
    "children": (3, 1, 5, None, 0),
    "live_children": (2, 1, 4, None, 0),
    "depth": (2, 3, 1, 6, None, 0),
    "concurrent": (2, 1, 8, None),
}
_POOLS: tuple[ResourceName, ...] = ("tokens", "tool_calls", "cost", "llm_calls", "llm_attempts", "tool_iterations")
_SCOPES: tuple[ScopeName, ...] = ("subtree", "subtree", "node", "run")
_TOOLS = (ToolRule(glob="shell", deny=True), ToolRule(glob="search", limit=1), ToolRule(glob="fetch", timeout=5))


@st.composite
def trees(draw: st.DrawFn) -> Agents:
    """Small limits on a tree, and what of its pools is shared or carved."""
    resources: list[TreeResourceName] = draw(st.lists(st.sampled_from(list(_MAXIMA)), unique=True))
    chosen = tuple(TreeLimit(resource=r, max=draw(st.sampled_from(_MAXIMA[r]))) for r in resources)
    pools: list[ResourceName] = draw(st.lists(st.sampled_from(_POOLS), unique=True, max_size=3))
    cut = draw(st.integers(0, len(pools)))
    return Agents(limits=chosen, share=tuple(pools[:cut]), carve=tuple(pools[cut:]))


@st.composite
def _scoped(draw: st.DrawFn, resource: ResourceName, largest: int) -> Limit:
    """A limit that an agent's block may have: never of a thread."""
    possible = [scope for scope in _SCOPES if scope in RESOURCES[resource].scopes]
    limit = draw(limits(resource, largest))
    return limit.model_copy(update={"scope": draw(st.sampled_from(possible))})


@st.composite
def agent_rules(draw: st.DrawFn, name: str, largest: int = 8) -> AgentRules:
    """The block of one agent: a few limits, and perhaps rules."""
    names: list[ResourceName] = [*COUNTED, "tokens", "cost", "wall"]
    limited = draw(st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=3))
    return AgentRules(
        name=name,
        limits=tuple(draw(_scoped(resource, largest)) for resource in limited),
        thresholds=(Threshold(percent=50, resource=limited[0], action="warn"),) if draw(st.booleans()) else (),
        failures=(FailureRule(reasons=("*",), then=(Finalize(text="Report."),)),) if draw(st.booleans()) else (),
        tools=tuple(draw(st.lists(st.sampled_from(_TOOLS), unique_by=id, max_size=1))),
    )


@st.composite
def tree_policies(draw: st.DrawFn, largest: int = 8, *, questions: bool = False) -> Policy:
    """A policy of trees: a few pools beside its limits, and perhaps blocks. ``questions``: people may be asked."""
    base = draw(asking_policies() if questions else policies(largest))
    pools: list[ResourceName] = draw(st.lists(st.sampled_from(_POOLS), unique=True, max_size=3))
    binding = {limit.id: limit for limit in (*base.limits, *(draw(_scoped(r, largest)) for r in pools))}
    named = draw(st.lists(st.sampled_from(AGENTS), unique=True))
    parts = {
        "limits": tuple(binding.values()),
        "prices": (Price(model="small", input=1_000_000, output=2_000_000),),
        "agents": draw(st.one_of(st.none(), trees())),
        "agent": tuple(draw(agent_rules(name, largest)) for name in named),
    }
    return Policy.model_validate({**dict(base), **parts})
