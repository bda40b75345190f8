"""What a rule looks at: the merged policy, the parts that are judged by themselves, and what is known around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from policy_lang.resolve import Resolved
from policy_lang.resolve.failures import FailureLine
from policy_lang.resolve.limits import LimitLine
from policy_lang.resolve.merge_agents import Agent
from policy_lang.resolve.statements import ThresholdLine
from policy_lang.resolve.tools import ToolLine
from policy_lang.settings import ClientSettings

if TYPE_CHECKING:
    from policy_lang.rules.tools import ToolScope


class Surroundings(NamedTuple):
    """What the host is known to have. ``None`` is: nobody has said. ``host`` are the abilities of whoever drives.

    ``seconds`` is the time that a search through all states of a policy may take; ``None``: there is none.
    """

    tools: Sequence[str] | None = None
    clients: Mapping[str, ClientSettings] | None = None
    host: Sequence[str] | None = None
    seconds: float | None = None


NOWHERE = Surroundings()


class Scope(NamedTuple):
    """A part of a policy that binds one agent: the policy itself, or one agent's block with what it inherits.

    ``own`` are the limits written there, ``limits`` all that bind each of the agent's runs; ``agent`` is ``None`` for
    the policy itself.
    """

    agent: Agent | None
    own: list[LimitLine]
    limits: list[LimitLine]
    thresholds: list[ThresholdLine]
    failures: list[FailureLine]
    tools: list[ToolLine]

    def limit(self, title: str) -> LimitLine | None:
        """The limit of this name, ``tokens`` or ``tokens per thread``, if there is one."""
        return next((line for line in self.limits if line.title == title), None)

    def finite(self, *resources: str) -> list[LimitLine]:
        """The limits of these resources, in whatever scope, that are not `unlimited`."""
        return [line for line in self.limits if line.data["resource"] in resources and line.data["max"] is not None]


class Subject:
    """One policy, as rules see it."""

    def __init__(self, resolved: Resolved, around: Surroundings) -> None:
        self.resolved = resolved
        self.around = around
        self.unit = resolved.unit
        self.merged, self.agents = resolved.merged, resolved.agents
        self.statements = resolved.unit.file.statements
        self.broken = resolved.broken

    @cached_property
    def main(self) -> Scope:
        """The policy itself."""
        m = self.merged
        return Scope(None, m.limits, m.limits, m.thresholds, m.failures, m.tools)

    @cached_property
    def scopes(self) -> list[Scope]:
        """The policy itself, then each agent's block."""
        walls = [line for line in self.merged.limits if line.data["resource"] == "wall"]
        scopes = [self.main]
        for agent in self.agents.agents:
            binding = agent.binding(self.merged.limits)
            limits = [*binding, *(wall for wall in walls if wall not in binding)]
            scopes.append(Scope(agent, agent.limits, limits, agent.thresholds, agent.failures, agent.tools))
        return scopes

    @cached_property
    def tool_scopes(self) -> list[ToolScope]:
        """The rules for tools of the policy itself, then those of each agent that has some."""
        from policy_lang.rules.tools import tool_scopes

        return list(tool_scopes(self))

    @property
    def lines(self) -> list[LimitLine]:
        """Every limit of the policy and of its agents, each where it is written."""
        return [line for scope in self.scopes for line in scope.own]
