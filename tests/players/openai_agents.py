"""Worlds in the OpenAI Agents SDK, through its chat-completions model and OpenAI's own client."""

from __future__ import annotations

import asyncio
from typing import Any

from adapter_worlds import Stage
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, SQLiteSession, function_tool
from openai import AsyncOpenAI

from engine.adapters.openai_agents import HOST, PolicyRunner
from engine.core.outcome import Outcome
from engine.run.results import failure

__all__ = ["DIFFERENT", "HOST", "LACKS", "play"]

LACKS: dict[str, str] = {}
DIFFERENT: dict[str, str] = {}


async def play(stage: Stage) -> list[tuple[str, str]]:
    world = stage.world
    client = AsyncOpenAI(api_key="none", base_url=f"{stage.url}/v1")
    first, *others = (OpenAIChatCompletionsModel(name, client) for name in world.clients)
    outcomes: list[Outcome] = []
    governed = PolicyRunner(stage.policy, {model.model: model for model in others}, on_end=outcomes.append)
    agent = Agent("agent", model=first, tools=[_tool(each) for each in stage.tools])
    session = SQLiteSession("t")
    async with client:
        for question in stage.questions:
            going = asyncio.ensure_future(_run(governed, agent, question, session, world.stream, world.grants))
            watch = asyncio.ensure_future(_cancels(stage, going))
            await asyncio.gather(going, return_exceptions=True)
            watch.cancel()
            if not going.cancelled() and (error := going.exception()) is not None:
                raise error
    session.close()
    return [(outcome.status, outcome.reason) for outcome in outcomes]


def _tool(function: Any) -> Any:
    """What a model reads of a failure is a matter of each tool; these say what our own driver says."""
    name = function.__name__
    return function_tool(function, failure_error_function=lambda _, error: failure(name, error).text)


async def _run(
    governed: PolicyRunner, agent: Agent[Any], question: Any, session: SQLiteSession, stream: bool, grants: bool
) -> None:
    given = question
    while given is not None:
        options: dict[str, Any] = {"session": session, "run_config": RunConfig(tracing_disabled=True)}
        if stream:
            result: Any = governed.run_streamed(agent, given, **options)
            async for _ in result.stream_events():
                pass
        else:
            result = await governed.run(agent, given, **options)
        if not result.interruptions:
            return
        given = result.to_state()
        for item in given.get_interruptions():
            given.approve(item) if grants else given.reject(item)


async def _cancels(stage: Stage, going: asyncio.Future[None]) -> None:
    await stage.cancelled.wait()
    going.cancel()
