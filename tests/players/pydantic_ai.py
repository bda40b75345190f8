"""Worlds in Pydantic AI, through its own model for OpenAI's chat completions."""

from __future__ import annotations

import asyncio
from typing import Any

from adapter_worlds import Stage
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from engine.adapters.pydantic_ai import HOST, PolicyCapability
from engine.core.outcome import Outcome

__all__ = ["DIFFERENT", "HOST", "LACKS", "play"]

LACKS: dict[str, str] = {}
DIFFERENT: dict[str, str] = {}


async def play(stage: Stage) -> list[tuple[str, str]]:
    world = stage.world
    provider = OpenAIProvider(base_url=f"{stage.url}/v1", api_key="none")
    own, *others = [OpenAIChatModel(name, provider=provider) for name in world.clients]
    outcomes: list[Outcome] = []
    policy = PolicyCapability(stage.policy, {each.model_name: each for each in others}, on_end=outcomes.append)
    agent = Agent(own, tools=stage.tools, capabilities=[policy], output_type=[str, DeferredToolRequests])
    history: list[Any] = []
    for question in stage.questions:
        going = asyncio.ensure_future(_run(agent, question, history, stage))
        watch = asyncio.ensure_future(_cancels(stage, going))
        await asyncio.gather(going, return_exceptions=True)
        watch.cancel()
        if not going.cancelled() and (error := going.exception()) is not None:
            raise error
    await provider.client.close()
    return [(outcome.status, outcome.reason) for outcome in outcomes]


async def _run(agent: Any, question: str | None, history: list[Any], stage: Stage) -> None:
    answers = None
    while True:
        given = {"message_history": history[:] or None, "deferred_tool_results": answers}
        if stage.world.stream:
            async with agent.iter(question, **given) as run:
                async for node in run:
                    if Agent.is_model_request_node(node):
                        async with node.stream(run.ctx) as pieces:
                            async for _ in pieces:
                                pass
            result = run.result
        else:
            result = await agent.run(question, **given)
        history[:] = result.all_messages()
        if not isinstance(result.output, DeferredToolRequests):
            return
        answers = DeferredToolResults()
        answers.approvals = dict.fromkeys((each.tool_call_id for each in result.output.approvals), stage.world.grants)
        question = None


async def _cancels(stage: Stage, going: asyncio.Future[None]) -> None:
    await stage.cancelled.wait()
    going.cancel()
