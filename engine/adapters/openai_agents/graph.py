"""Copies of the user's agents, with gates before their tools and policies over their models; theirs stay as they are.

A copy is of a class of its own that is derived from its agent's, so that whatever the SDK makes of it is one too.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

from agents import Agent, Handoff
from agents.models.interface import Model
from agents.run_context import RunContextWrapper
from agents.tool import Tool

from engine.adapters.openai_agents.calls import Named
from engine.adapters.openai_agents.gates import gated
from engine.adapters.openai_agents.running import current


class Governed:
    """What a copy has beside its agent: all its tools have gates, those of MCP servers too."""

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        tools: list[Tool] = await super().get_all_tools(run_context)  # type: ignore[misc]
        running = current.get()
        if running is None:
            return tools
        known: dict[tuple[int, bool], tuple[Tool, Tool]] = self.__dict__.setdefault("_policy_gates", {})
        own = {id(tool) for tool in self.__dict__.get("tools", ())}
        found = []
        for tool in tools:
            key = (id(tool), running.asks(tool.name))
            pair = known.get(key) or (tool, gated(tool, running))
            if id(tool) in own:  # those of servers are made anew each time
                known[key] = pair
            found.append(pair[1])
        return found


@cache
def _governed(kind: Any) -> Any:
    return type(kind.__name__, (Governed, kind), {})


class Graph:
    """The copies of one run. ``check`` is told of every agent that is copied."""

    def __init__(self, named: Named, check: Callable[[Agent[Any]], None]) -> None:
        self._named, self._check = named, check
        self._copies: dict[int, tuple[Agent[Any], Agent[Any]]] = {}

    def of(self, agent: Agent[Any]) -> Agent[Any]:
        """The copy of an agent, and with it of all that it hands over to."""
        if isinstance(agent, Governed):
            return agent
        known = self._copies.get(id(agent))
        if known is not None:
            return known[1]
        self._check(agent)
        kind: Any = type(agent)
        made: Agent[Any] = object.__new__(_governed(kind))
        made.__dict__.update(agent.__dict__)
        self._copies[id(agent)] = (agent, made)
        if isinstance(agent.model, Model):
            made.model = self._named.under(agent.model)
        made.handoffs = [self._handoff(each) for each in agent.handoffs]
        return made

    def _handoff(self, each: Agent[Any] | Handoff[Any, Any]) -> Any:
        if not isinstance(each, Handoff):
            return self.of(each)
        made = copy.copy(each)

        async def on_invoke_handoff(context: RunContextWrapper[Any], arguments: str) -> Any:
            return self.of(await each.on_invoke_handoff(context, arguments))

        made.on_invoke_handoff = on_invoke_handoff
        target = each._agent_ref() if each._agent_ref is not None else None
        if isinstance(target, Agent):
            made._agent_ref = weakref.ref(self.of(target))
        return made
