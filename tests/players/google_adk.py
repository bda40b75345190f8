"""Worlds in Google ADK, through its own model for what speaks OpenAI's format (LiteLLM)."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from adapter_worlds import Stage
from google.adk.agents import LlmAgent
from google.adk.agents._streaming_mode import StreamingMode
from google.adk.agents.run_config import RunConfig
from google.adk.events import Event
from google.adk.models.lite_llm import LiteLlm, LiteLLMClient
from google.adk.runners import InMemoryRunner
from google.genai import types

from engine.adapters.google_adk import HOST, PolicyPlugin
from engine.core.outcome import Outcome

__all__ = ["DIFFERENT", "HOST", "LACKS", "play"]

LACKS: dict[str, str] = {}
DIFFERENT: dict[str, str] = {
    "not_json": "the `LiteLlm` of ADK drops a call whose arguments are no JSON, and reports a reply that failed",
}
CONFIRMATION = "adk_request_confirmation"
_USER = "somebody"

logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)


class Plain(LiteLLMClient):
    """Sends a tool's text as it is. The framework puts every result into an object, ``{"result": ...}``; what is in it
    is what worlds are held against each other by."""

    async def acompletion(self, model: Any, messages: Any, tools: Any, **kwargs: Any) -> Any:
        return await super().acompletion(model, [_plain(each) for each in messages], tools, **kwargs)


def _plain(message: Any) -> Any:
    if message["role"] != "tool":
        return message
    try:
        told = json.loads(message["content"])
    except ValueError:
        return message
    return {**message, "content": next(iter(told.values()))} if len(told) == 1 else message


def model(name: str, url: str) -> LiteLlm:
    """A model on a rehearsed provider."""
    return LiteLlm(f"openai/{name}", api_base=f"{url}/v1", api_key="none", llm_client=Plain())


async def play(stage: Stage) -> list[tuple[str, str]]:
    world = stage.world
    outcomes: list[Outcome] = []
    clients = {name: model(name, stage.url) for name in world.clients}
    policy = PolicyPlugin(stage.policy, clients, on_end=outcomes.append)
    agent = LlmAgent(name="agent", model=policy.model, tools=list(stage.tools))
    runner = InMemoryRunner(agent, app_name="worlds", plugins=[policy])
    session = await runner.session_service.create_session(app_name="worlds", user_id=_USER)
    config = RunConfig(streaming_mode=StreamingMode.SSE if world.stream else StreamingMode.NONE)
    for question in stage.questions:
        going = asyncio.ensure_future(_run(runner, session.id, question, config, world.grants))
        watch = asyncio.ensure_future(_cancels(stage, going))
        await asyncio.gather(going, return_exceptions=True)
        watch.cancel()
        if not going.cancelled() and (error := going.exception()) is not None:
            raise error
    await runner.close()
    return [(outcome.status, outcome.reason) for outcome in outcomes]


async def _run(runner: InMemoryRunner, session: str, question: str, config: RunConfig, grants: bool) -> None:
    parts = [types.Part(text=question)]
    while parts:
        message = types.Content(role="user", parts=parts)
        parts = []
        going = runner.run_async(user_id=_USER, session_id=session, new_message=message, run_config=config)
        async for event in going:
            parts += [confirmed(call, grants) for call in asked_in(event)]


def asked_in(event: Event) -> list[types.FunctionCall]:
    """What a person is asked in an event."""
    return [call for call in event.get_function_calls() if call.name == CONFIRMATION]


def confirmed(call: types.FunctionCall, grants: bool) -> types.Part:
    """A person's answer."""
    answer = types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": grants})
    return types.Part(function_response=answer)


async def _cancels(stage: Stage, going: asyncio.Future[None]) -> None:
    await stage.cancelled.wait()
    going.cancel()
