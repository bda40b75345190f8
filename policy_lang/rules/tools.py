"""What tool rules do to one another: which of them are about the same tools, and which lift which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from policy_lang.glob_index import Patterns
from policy_lang.resolve.limits import LimitLine
from policy_lang.resolve.tools import ToolLine
from policy_lang.rules.subject import Subject


class ToolScope(NamedTuple):
    """The rules of a policy, or of one agent with those of the policy ``around`` it; ``lifting`` are the patterns of
    every ``allow`` that counts here, ``denying`` those of every ``deny``, the agent's own first.

    An ``allow`` of an agent lifts what the policy denies, for this agent: so the tools may run somewhere.
    """

    tools: list[ToolLine]
    around: list[ToolLine]
    below: list[ToolLine]
    limits: list[LimitLine]
    lifting: tuple[Patterns[ToolLine], ...]
    denying: tuple[Patterns[ToolLine], ...]

    @property
    def binding(self) -> list[ToolLine]:
        """All rules that say something about the tools of this agent."""
        return [*self.tools, *self.around]


def tool_scopes(policy: Subject) -> Iterator[ToolScope]:
    """The policy itself, then each agent that has tool rules."""
    merged, agents = policy.merged, policy.agents.agents
    # What the policy allows may be an exception to what it denies one agent.
    below = [line for agent in agents for line in agent.tools]
    allowed, denied = indexed(merged.tools, "allow"), indexed(merged.tools, "deny")
    yield ToolScope(merged.tools, [], below, merged.limits, (allowed, indexed(below, "allow")), (denied,))
    for agent in agents:
        if agent.tools:
            lifting = (indexed(agent.tools, "allow"), allowed)
            denying = (indexed(agent.tools, "deny"), denied)
            limits = [*merged.limits, *agent.limits]
            yield ToolScope(agent.tools, merged.tools, [], limits, lifting, denying)


def indexed(lines: list[ToolLine], *clauses: str) -> Patterns[ToolLine]:
    """The rules that have one of these clauses, by their patterns."""
    chosen = [line for line in lines for clause in clauses if line.data[clause] not in (None, False)]
    return Patterns((line.data["glob"], line) for line in chosen)


def denies(denial: ToolLine, exceptions: Exceptions) -> bool:
    """Is none of the tools of a pattern, all of which a rule is about, allowed by way of exception to it?"""
    return not any(other != denial.data["glob"] for other in exceptions.of(denial.data["base"]))


class Exceptions:
    """The patterns of `allow` that share a tool with one pattern, by the file they stand in: at most two of each, which
    is enough to know of one that is not a given one. Looked for once they are asked for."""

    def __init__(self, glob: str, scope: ToolScope) -> None:
        self._found: dict[int, set[str]] = {}
        self._rest = ((other, line) for patterns in scope.lifting for other, line in patterns.overlapping(glob))

    def of(self, base: int) -> set[str]:
        found = self._found.setdefault(base, set())
        while len(found) < 2 and (pair := next(self._rest, None)) is not None:
            self._found.setdefault(pair[1].data["base"], set()).add(pair[0])
        return found


def denial_of(glob: str, scope: ToolScope) -> ToolLine | None:
    """The first rule that denies every tool of a pattern, if there is one."""
    exceptions = Exceptions(glob, scope)
    found = (line for patterns in scope.denying for line in patterns.covering(glob))
    return next((line for line in found if denies(line, exceptions)), None)


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
