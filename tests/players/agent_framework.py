"""Worlds in the Microsoft Agent Framework, through its own client for OpenAI."""

from __future__ import annotations

import asyncio

from adapter_worlds import Stage
from agent_framework import Agent, AgentSession, Message
from agent_framework.openai import OpenAIChatCompletionClient

from engine.adapters.agent_framework import HOST, PolicyMiddleware
from engine.core.outcome import Outcome

__all__ = ["DIFFERENT", "HOST", "LACKS", "play"]

LACKS: dict[str, str] = {}
DIFFERENT: dict[str, str] = {}


async def play(stage: Stage) -> list[tuple[str, str]]:
    world = stage.world
    clients = {
        name: OpenAIChatCompletionClient(model=name, api_key="none", base_url=f"{stage.url}/v1")
        for name in world.clients
    }
    outcomes: list[Outcome] = []
    policy = PolicyMiddleware(stage.policy, clients, on_end=outcomes.append)
    agent = Agent(client=policy.client, tools=stage.tools, middleware=[policy])
    session = AgentSession()
    try:
        for question in stage.questions:
            going = asyncio.ensure_future(_run(agent, question, session, world.stream, world.grants))
            watch = asyncio.ensure_future(_cancels(stage, going))
            await asyncio.gather(going, return_exceptions=True)
            watch.cancel()
            if not going.cancelled() and (error := going.exception()) is not None:
                raise error
    finally:
        for client in clients.values():
            await client.client.close()
    return [(outcome.status, outcome.reason) for outcome in outcomes]


async def _run(agent: Agent, question: str, session: AgentSession, stream: bool, grants: bool) -> None:
    messages: list[Message] = [Message("user", [question])]
    while messages:
        if stream:
            pieces = agent.run(messages, session=session, stream=True)
            async for _ in pieces:
                pass
            response = await pieces.get_final_response()
        else:
            response = await agent.run(messages, session=session)
        asked = response.user_input_requests
        messages = [Message("user", [each.to_function_approval_response(grants)]) for each in asked]


async def _cancels(stage: Stage, going: asyncio.Future[None]) -> None:
    await stage.cancelled.wait()
    going.cancel()
