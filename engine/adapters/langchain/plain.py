"""The model's node for graphs that are no ``create_agent``: what a policy needs of it there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as made_tool

from engine.adapters.langchain.middleware import PolicyMiddleware


def model_node(
    governed: PolicyMiddleware,
    model: BaseChatModel,
    tools: Sequence[BaseTool | Callable[..., Any]] = (),
    *,
    system_prompt: str | None = None,
) -> Runnable[Any, Any]:
    """A node of a graph over ``PolicyState`` that calls a model as the policy says. ``tools`` are those of the graph's
    ``ToolNode``, whose wrappers are ``governed.wrap_tool_call`` and ``governed.awrap_tool_call``; the node in which a
    run begins is ``governed.before_agent``."""
    known: list[Any] = [each if isinstance(each, BaseTool) else made_tool(each) for each in tools]
    system = None if system_prompt is None else SystemMessage(system_prompt)

    def request(state: Any) -> ModelRequest[Any]:
        return ModelRequest(
            model=model, messages=list(state["messages"]), system_message=system, tools=known, state=state, runtime=None
        )

    def call(state: Any) -> dict[str, Any]:
        return _update(
            governed.wrap_model_call(request(state), lambda r: ModelResponse([_bound(r).invoke(_messages(r))]))
        )

    async def acall(state: Any) -> dict[str, Any]:
        async def handler(r: ModelRequest[Any]) -> ModelResponse[Any]:
            return ModelResponse([await _bound(r).ainvoke(_messages(r))])

        return _update(await governed.awrap_model_call(request(state), handler))

    return RunnableLambda(call, acall, name="model")


def _bound(request: ModelRequest[Any]) -> Runnable[Any, Any]:
    if not request.tools:
        return request.model.bind(**request.model_settings)
    return request.model.bind_tools(request.tools, tool_choice=request.tool_choice, **request.model_settings)


def _messages(request: ModelRequest[Any]) -> list[Any]:
    return [*([request.system_message] if request.system_message else []), *request.messages]


def _update(response: ModelResponse[Any] | ExtendedModelResponse[Any]) -> dict[str, Any]:
    if isinstance(response, ModelResponse):
        return {"messages": response.result}
    more = response.command.update if response.command is not None else None
    return {"messages": response.model_response.result, **(more if isinstance(more, dict) else {})}
