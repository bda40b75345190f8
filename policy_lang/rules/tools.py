"""What tool rules do to one another: which denies lift which, and how many pairs are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from policy_lang.globs import covers, overlap
from policy_lang.resolve.limits import LimitLine
from policy_lang.resolve.tools import ToolLine
from policy_lang.rules.subject import Subject

MOST_PAIRS = 100_000
"""Pairs of rules that are compared. People's policies have far fewer, and no file may make a check take minutes."""


class ToolScope(NamedTuple):
    """The rules of a policy, or of one agent with those of the policy ``around`` it; ``below`` are its agents'."""

    tools: list[ToolLine]
    around: list[ToolLine]
    below: list[ToolLine]
    limits: list[LimitLine]

    @property
    def binding(self) -> list[ToolLine]:
        """All rules that say something about the tools of this agent."""
        return [*self.tools, *self.around]

    @property
    def exceptions(self) -> dict[int, list[str]]:
        """The patterns of every ``allow``, by the mark of the file they stand in.

        That of an agent lifts what the policy denies, for this agent: so the tools may run somewhere.
        """
        found: dict[int, list[str]] = {}
        for line in (*self.binding, *self.below):
            if line.data["allow"]:
                found.setdefault(line.data["base"], []).append(line.data["glob"])
        return found


def tool_scopes(policy: Subject) -> Iterator[ToolScope]:
    """The policy itself, then each agent that has tool rules."""
    merged, agents = policy.merged, policy.agents.agents
    # What the policy allows may be an exception to what it denies one agent.
    denied_below = [line for agent in agents for line in agent.tools]
    yield ToolScope(merged.tools, [], denied_below, merged.limits)
    for agent in agents:
        if agent.tools:
            yield ToolScope(agent.tools, merged.tools, [], [*merged.limits, *agent.limits])


def denies(denial: dict[str, Any], glob: str, allowed: list[str]) -> bool:
    """Is every tool of the pattern denied, and none of them allowed by way of exception?"""
    if not covers(denial["glob"], glob):
        return False
    return not any(other != denial["glob"] and overlap(other, glob) for other in allowed)


def denial_of(glob: str, scope: ToolScope) -> ToolLine | None:
    """The rule that denies every tool of a pattern, if there is one."""
    exceptions = scope.exceptions
    for line in scope.binding:
        if line.data["deny"] and denies(line.data, glob, exceptions.get(line.data["base"], [])):
            return line
    return None


def most_executions(policy: Subject) -> LimitLine | None:
    """The limit of ``tool_calls`` because of which no run, of any agent, has more executions; ``None`` without one."""
    least: list[LimitLine] = []
    for scope in policy.scopes:
        lines = [*scope.finite("tool_calls"), *policy.main.finite("tool_calls")]
        own = {line.key for line in scope.own}
        # An agent's limit of one run stands in the place of the policy's; a pool of the policy binds its agents too.
        binding = [x for x in lines if x in scope.own or x.data["scope"] != "run" or x.key not in own]
        if not binding:
            return None
        least.append(min(binding, key=lambda line: line.total or 0))
    return max(least, key=lambda line: line.total or 0)
