"""What stands beside a policy and would fight it: told once each, as warnings in the logger ``policy.adapters``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from langchain.agents.middleware import (
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.language_models import BaseChatModel

from engine.core.policy import Policy

_log = logging.getLogger("policy.adapters")

FIGHTING: dict[type[AgentMiddleware[Any, Any, Any]], str] = {
    ModelCallLimitMiddleware: "it ends the run by a count of its own: take it out, `llm_calls` is that limit",
    ToolCallLimitMiddleware: "it counts tool calls on its own: take it out, `tool_calls` and `limit` are these limits",
    ModelRetryMiddleware: "every try of its own is a new call: take it out, `retry` does that",
    ModelFallbackMiddleware: "every try of its own is a new call: take it out, `fallback` does that",
    ToolRetryMiddleware: "it runs a tool again by itself: take it out, `retry` in the tool's rule does that",
}
"""Middlewares that do what a policy does, and why that fights it."""

_STEPS = 2
"""Steps of the graph for each turn: the model, its tools."""


class Beside:
    """See the module."""

    def __init__(self, policy: Policy, models: Mapping[str, BaseChatModel]) -> None:
        self._policy = policy
        self._told: set[str] = set()
        self._looked: set[Any] = set()
        for name, model in models.items():
            self._retries(f"the model `{name}`", model)

    def look(self, ours: AgentMiddleware[Any, Any, Any]) -> None:
        """Look at the other middlewares of the agent that is being made, if one is."""
        for warning in beside(ours, _being_made()):
            self._tell(warning)

    def look_at_call(self, model: BaseChatModel, handler: Any) -> None:
        """Look at the model that is about to be called."""
        if id(model) not in self._looked:
            self._looked.add(id(model))
            self._retries("the agent's model", model)

    def look_at_limit(self, limit: int) -> None:
        """Look at how many steps the graph may make."""
        if limit in self._looked:
            return
        self._looked.add(limit)
        counted = ("llm_calls", "tool_iterations")
        own = [x for x in self._policy.limits if x.resource in counted and x.scope == "run"]
        most = [x.max * _STEPS for x in own if x.max is not None]
        if most and limit < min(most) + 1:
            self._tell(
                f"`recursion_limit` is {limit}: the graph breaks off before the policy's limits are reached "
                f"(they need {min(most) + 1} steps)"
            )

    def _retries(self, what: str, model: BaseChatModel) -> None:
        if "max_retries" not in type(model).model_fields:
            return
        retries = getattr(model, "max_retries", None)
        if retries != 0:
            told = "as often as its SDK likes" if retries is None else f"up to {retries} times"
            self._tell(f"{what} tries again {told}, which no limit counts: make it with `max_retries=0`")

    def _tell(self, warning: str) -> None:
        if warning not in self._told:
            self._told.add(warning)
            _log.warning("policy `%s` on langchain: %s", self._policy.name, warning)


def beside(ours: AgentMiddleware[Any, Any, Any], others: Iterable[AgentMiddleware[Any, Any, Any]]) -> list[str]:
    """What of an agent's middlewares would fight a policy, a sentence each."""
    listed = list(others)
    found = []
    for each in listed:
        for kind, why in FIGHTING.items():
            if isinstance(each, kind):
                found.append(f"`{type(each).__name__}` is beside it: {why}")
    if ours in listed and listed[-1] is not ours:
        inner = [type(each).__name__ for each in listed[listed.index(ours) + 1 :] if _wraps(each)]
        if inner:
            names = ", ".join(f"`{name}`" for name in inner)
            found.append(
                f"{names} stand behind it, and change what it has decided: let the policy be the last middleware"
            )
    return found


def _wraps(each: AgentMiddleware[Any, Any, Any]) -> bool:
    hooks = ("wrap_model_call", "awrap_model_call", "wrap_tool_call", "awrap_tool_call")
    return any(getattr(type(each), hook) is not getattr(AgentMiddleware, hook) for hook in hooks)


def _being_made() -> list[AgentMiddleware[Any, Any, Any]]:
    """The middlewares given to ``create_agent``, where that is what asks us: it tells none of them of the others."""
    frame = sys._getframe(2)
    for _ in range(4):
        if frame.f_code.co_name == "create_agent":
            return list(frame.f_locals.get("middleware", ()))
        if frame.f_back is None:
            break
        frame = frame.f_back
    return []
