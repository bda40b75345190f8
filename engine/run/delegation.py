"""The tool by which a model gives a task to another agent: its declaration, and what the model reads of the end.

Words only: spawning and waiting is the tree's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Annotated, Final, Literal

from pydantic import Field

from engine.core.state import LimitHit, Refusal
from engine.core.texts import quantity
from engine.core.vocabulary import RESOURCES
from engine.run.agents import DELEGATE, Agent
from engine.run.host import Host
from engine.run.result import RunResult
from engine.run.results import ToolResult
from engine.run.tools import Tool, ToolContext

Carry = Callable[[str, str, ToolContext], Awaitable[ToolResult]]
"""Carries out a delegation: agent, task, and the execution that asks for it."""

_DESCRIPTION: Final = (
    "Give a task to another agent and get its answer. It knows nothing of this conversation, so the task must say "
    "everything it needs. Several delegations in one reply run side by side. The agents:"
)

_REFUSED: Final = {
    "depth": "no more levels of agents are allowed",
    "children": "no more agents may be started by it",
    "live_children": "too many of its agents are still open",
    "wall": "its time is over",
    "closing": "it is being closed",
    "closed": "it is closed",
    "running": "it has a run going on",
    "queued": "it waits for its turn already",
    "suspended": "its run waits for a person",
    "stopping": "its run is at its end",
    "finalize": "this run is at its end",
}


def delegate_tool(agents: Mapping[str, Agent], carry: Carry) -> Tool:
    """The tool, for these agents."""

    async def delegate(agent: str, task: str, context: ToolContext) -> ToolResult:
        return await carry(agent, task, context)

    named = Literal[tuple(agents)]  # type: ignore[valid-type]
    delegate.__annotations__ = {
        "agent": Annotated[named, Field(description="Which agent.")],
        "task": Annotated[str, Field(description="What it is to do, in full.", pattern=r"\S")],
        "context": ToolContext,
        "return": ToolResult,
    }
    each = "\n".join(f"- {agent.name}: {agent.description}" for agent in agents.values())
    return Tool(delegate, name=DELEGATE, description=f"{_DESCRIPTION}\n{each}")


def answer_of(agent: str, result: RunResult) -> ToolResult:
    """What the model that has delegated reads of the end of the agent's run."""
    if result.ok:
        return ToolResult(result.text)
    if result.status == "incomplete":
        said = f"The agent `{agent}` did not finish: {_limit(result.limit, result.reason)}."
        status: Literal["failed", "cancelled"] = "failed"
    elif result.status == "cancelled":
        said, status = f"The agent `{agent}` was cancelled before it had finished.", "cancelled"
    else:
        said, status = f"The agent `{agent}` failed: {result.error or result.reason}.", "failed"
    rest = f"What it had said so far:\n{result.text}" if result.text else "It had said nothing yet."
    return ToolResult(f"{said} {rest}", status)


def refusal_of(agent: str, refusal: Refusal) -> ToolResult:
    """What the model reads of a delegation that a limit does not allow."""
    return ToolResult(f"The agent `{agent}` was not started: {refusal_words(refusal)}.", "failed")


def refusal_words(refusal: Refusal) -> str:
    """What does not allow something, and its numbers."""
    limit = refusal.limit
    why = _REFUSED.get(limit.resource)
    return f"{why} ({_numbers(limit)})" if why and limit.maximum else why or _limit(limit, limit.resource)


def not_started(agent: str) -> ToolResult:
    """What is stored of a delegation that was cancelled before anything came of it."""
    return ToolResult(f"The agent `{agent}` was not started.", "cancelled")


def _limit(limit: LimitHit | None, reason: str) -> str:
    return f"the limit on {limit.resource} is reached ({_numbers(limit)})" if limit is not None else reason


def _numbers(limit: LimitHit) -> str:
    known = RESOURCES.get(limit.resource)
    unit = known.unit if known else "count"
    used, maximum = quantity(unit, limit.spent), quantity(unit, limit.maximum)
    left = quantity(unit, max(0, limit.maximum - limit.used))
    aside = f"{quantity(unit, limit.set_aside)} set aside for agents until they end, " if limit.set_aside else ""
    return f"{used} of {maximum} used, {aside}{left} left, limit of {limit.owner} per {limit.scope}"


def with_delegation(host: Host, agents: Mapping[str, Agent], carry: Carry) -> Host:
    """The host with the tool."""
    return replace(host, tools={**host.tools, DELEGATE: delegate_tool(agents, carry)}, delegates=DELEGATE)
