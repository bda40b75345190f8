"""``Policy``: the canonical form of a policy, written by the language or directly in Python.

Plain data with a JSON form, a JSON Schema and a fingerprint. Durations are integer
milliseconds, money is integer micro-dollars, ``None`` as a maximum means unlimited.
It knows nothing about text files, and nothing about how a run is decided.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, model_validator

from engine.core.agents import AgentRules, Agents, TreeLimit, TreeResourceName, no_repeats
from engine.core.claims import Claim
from engine.core.ladders import (
    Ask,
    Consult,
    Extend,
    FailureStep,
    Fallback,
    Finalize,
    Origin,
    Part,
    Retry,
    Step,
    Stop,
)
from engine.core.statements import (
    MAX_WINDOW,
    Breaker,
    Detector,
    FailureRule,
    Finalization,
    Limit,
    Price,
    ResourceName,
    ScopeName,
    Threshold,
    ToolRule,
)
from engine.core.vocabulary import SEMANTICS_VERSION, TREE_RESOURCES


class Policy(Part):
    """A whole policy, with everything inherited and every name resolved."""

    lang: Literal[1] = 1
    name: Annotated[str, Field(min_length=1)]
    limits: tuple[Limit, ...] = ()
    finalization: Finalization = Finalization()
    thresholds: tuple[Threshold, ...] = ()
    failures: tuple[FailureRule, ...] = ()
    breakers: tuple[Breaker, ...] = ()
    tools: tuple[ToolRule, ...] = ()
    prices: tuple[Price, ...] = ()
    agents: Agents | None = None
    """Limits on the tree below each node; ``None`` is ``Agents()``, the defaults."""
    agent: tuple[AgentRules, ...] = ()
    claims: tuple[Claim, ...] = ()
    """What is to hold in every run under the policy. They change no decision, so they are not in its fingerprint."""

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        no_repeats("limit", [limit.id for limit in self.limits])
        no_repeats("rule for the failure", [reason for rule in self.failures for reason in rule.reasons])
        no_repeats("price", [price.model for price in self.prices])
        no_repeats("agent", [rules.name for rules in self.agent])
        no_repeats("claim", [claim.name for claim in self.claims])
        limits = [*self.limits, *(limit for rules in self.agent for limit in rules.limits)]
        if any(limit.resource == "cost" and limit.max is not None for limit in limits) and not self.prices:
            raise ValueError("a cost limit needs a price table")
        return self

    def of_agent(self, name: str) -> Policy:
        """The policy that a child called ``name`` runs under, where this is its parent's.

        The parent's limits of one run, each replaced by the block's of the same resource and scope, and whatever
        else the block limits. What the parent limits per thread, subtree or node is not repeated: those bind through
        the pools of the tree. The block's rules for a failure replace those for the same reason; tool rules and
        thresholds accumulate; claims are about the parent's own runs; everything else is the parent's.
        """
        rules = next((rules for rules in self.agent if rules.name == name), AgentRules(name=name))
        own = {limit.id for limit in rules.limits}
        kept = [limit for limit in self.limits if limit.scope in ("run", None) and limit.id not in own]
        fields = {part: getattr(self, part) for part in type(self).model_fields}
        fields |= {
            "name": f"{self.name}/{name}",
            "limits": (*kept, *rules.limits),
            "thresholds": _joined(self.thresholds, rules.thresholds),
            "failures": (*_left_to(self.failures, rules.failures), *rules.failures),
            "tools": _joined(self.tools, rules.tools),
            "claims": (),
        }
        # Its parts are those of a valid policy, and none can stand twice: to look at all of them again for each of
        # thousands of agents would take a time that grows with their square.
        return Policy.model_construct(**fields)

    def canonical(self) -> dict[str, Any]:
        """The meaning alone: no name, origins, locks or claims, no defaults, independent statements in a fixed order.

        Two policies that decide every run alike by construction have equal canonical forms; what the language learns
        later leaves those of older policies as they are.
        """
        data: dict[str, Any] = _strip(self.model_dump(mode="json", exclude_defaults=True, exclude={"claims"}))
        del data["name"]
        for breaker in data.get("breakers", ()):
            breaker["trips"].sort(key=_dumps)
        data["prefer"] = list(self.finalization.order)
        data.get("finalization", {}).pop("prefer", None)
        data["agents"] = _canonical_agents(self.agents or Agents())
        blocks = data.get("agent", [])
        # How many files there are between two rules means nothing; only which rules share one does.
        rules = [rule for part in (data, *blocks) for rule in part.get("tools", ())]
        files = sorted({rule.get("base", 0) for rule in rules})
        for rule in rules:
            rule["base"] = files.index(rule.get("base", 0))
        for part in (data, *blocks):
            _canonical_rules(part)
        data["agent"] = [block for block in blocks if len(block) > 1]
        for key in ("breakers", "prices", "agent"):
            data.get(key, []).sort(key=_dumps)
        return {key: value for key, value in data.items() if value}

    def fingerprint(self) -> str:
        """SHA-256 (hex) over the canonical form and the core's semantics version."""
        return hashlib.sha256(_dumps([SEMANTICS_VERSION, self.canonical()]).encode()).hexdigest()

    def resolvers(self) -> tuple[str, ...]:
        """Names of the host's functions that the policy calls, sorted."""
        names = {self.finalization.using, *(breaker.using for breaker in self.breakers)}
        for step in self._steps():
            names.add(step.using if isinstance(step, Finalize) else step.name if isinstance(step, Consult) else None)
        return tuple(sorted(name for name in names if name))

    def consultants(self) -> frozenset[str]:
        """Names of the host's functions that choose a step."""
        return frozenset(step.name for step in self._steps() if isinstance(step, Consult))

    def clients(self) -> tuple[str, ...]:
        """Names of the clients that the policy may switch to, sorted."""
        chains = [step.clients for step in self._steps() if isinstance(step, Fallback)]
        names = {name for chain in chains for name in chain}
        thresholds = [*self.thresholds, *(threshold for rules in self.agent for threshold in rules.thresholds)]
        return tuple(sorted(names | {threshold.client for threshold in thresholds if threshold.client}))

    def _steps(self) -> list[Stop | Finalize | Extend | Ask | Consult | Retry | Fallback]:
        """Those of the agents' blocks too: the host needs what they name."""
        blocks: tuple[Policy | AgentRules, ...] = (self, *self.agent)
        at_limits = [step for block in blocks for limit in block.limits for step in limit.then]
        return [*at_limits, *(step for block in blocks for rule in block.failures for step in rule.then)]


_Rule = TypeVar("_Rule")


def _joined(rules: tuple[_Rule, ...], more: tuple[_Rule, ...]) -> tuple[_Rule, ...]:
    """All of them, each once: an agent below one of its own name would get its block a second time."""
    return (*rules, *(rule for rule in more if rule not in rules))


def _left_to(rules: tuple[FailureRule, ...], nearer: tuple[FailureRule, ...]) -> list[FailureRule]:
    """What is left of ``rules`` for reasons that no nearer rule takes."""
    taken = {reason for rule in nearer for reason in rule.reasons}
    left = [(rule, tuple(reason for reason in rule.reasons if reason not in taken)) for rule in rules]
    return [rule.model_copy(update={"reasons": reasons}) for rule, reasons in left if reasons]


def _canonical_rules(part: dict[str, Any]) -> None:
    """The limits and rules of a policy, or of one agent's block, in one order and without what means nothing."""
    for limit in part.get("limits", ()):
        limit.pop("locked", None)
        for step in limit.get("then", ()):
            if step["do"] == "ask" and step.get("up_to") == limit.get("max"):
                step.pop("up_to", None)
        while limit.get("then") and limit["then"][-1] == {"do": "stop"}:
            limit["then"].pop()
        if not limit.get("then"):
            limit.pop("then", None)
    if rules := part.get("failures"):
        part["failures"] = [
            {"reasons": together, "then": rule["then"]} for rule in rules for together in _together(rule)
        ]
    for key in ("limits", "thresholds", "failures", "tools"):
        if key in part:
            part[key].sort(key=_dumps)


def _canonical_agents(agents: Agents) -> dict[str, Any]:
    """The maxima that are not the defaults, and what is carved: sharing is what happens otherwise."""
    limits = {limit.resource: limit.max for limit in agents.limits if limit.max != TREE_RESOURCES[limit.resource]}
    return {key: value for key, value in (("limits", limits), ("carve", sorted(agents.carve))) if value}


def _together(rule: dict[str, Any]) -> list[list[str]]:
    """The reasons of a rule that share something: what its retries still grant. Without retries each stands alone."""
    if any(step["do"] == "retry" for step in rule["then"]):
        return [sorted(rule["reasons"])]
    return [[reason] for reason in rule["reasons"]]


def _strip(value: Any) -> Any:
    """Drop origins, and whatever is ``None``, everywhere in a JSON value."""
    if isinstance(value, dict):
        return {k: _strip(v) for k, v in value.items() if k != "origin" and v is not None}
    if isinstance(value, list):
        return [_strip(v) for v in value]
    return value


def _dumps(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


__all__ = [
    "MAX_WINDOW",
    "AgentRules",
    "Agents",
    "Ask",
    "Breaker",
    "Claim",
    "Consult",
    "Detector",
    "Extend",
    "FailureRule",
    "FailureStep",
    "Fallback",
    "Finalization",
    "Finalize",
    "Limit",
    "Origin",
    "Policy",
    "Price",
    "ResourceName",
    "Retry",
    "ScopeName",
    "Step",
    "Stop",
    "Threshold",
    "ToolRule",
    "TreeLimit",
    "TreeResourceName",
]
