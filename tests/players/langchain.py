"""LangChain's ``create_agent`` under a policy, with its own client of OpenAI."""

from __future__ import annotations

import asyncio
from typing import Any

from adapter_worlds import Stage
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from engine.adapters.langchain import PolicyMiddleware

HOST = "langchain"
LACKS: dict[str, str] = {}
DIFFERENT: dict[str, str] = {
    "misfit": "a tool of LangChain takes no notice of arguments that it does not have, so only what is missing is told",
}


async def play(stage: Stage) -> list[tuple[str, str]]:
    world = stage.world
    models = {
        name: ChatOpenAI(model=name, base_url=f"{stage.url}/v1", api_key="none", max_retries=0)  # type: ignore[arg-type]
        for name in world.clients
    }
    policy = PolicyMiddleware(stage.policy, models)
    agent = create_agent(models["main"], stage.tools, middleware=[policy], checkpointer=InMemorySaver())
    outcomes = []
    for question in stage.questions:
        going = asyncio.ensure_future(_run(agent, question, world.stream, world.grants))
        watch = asyncio.ensure_future(_cancels(stage, going))
        await asyncio.wait([going])
        watch.cancel()
        if not going.cancelled():
            going.result()
        outcome = policy.outcome(thread="t")
        assert outcome is not None
        outcomes.append((outcome.status, outcome.reason))
    return outcomes


async def _run(agent: Any, question: str, stream: bool, grants: bool) -> None:
    config = {"configurable": {"thread_id": "t"}}
    asked: Any = {"messages": [{"role": "user", "content": question}]}
    while True:
        if stream:
            async for _ in agent.astream(asked, config, stream_mode="messages"):
                pass
        else:
            await agent.ainvoke(asked, config)
        state = await agent.aget_state(config)
        if not state.interrupts:
            return
        decision = {"type": "approve" if grants else "reject"}
        asked = Command(resume={each.id: decision for each in state.interrupts})


async def _cancels(stage: Stage, going: asyncio.Future[None]) -> None:
    await stage.cancelled.wait()
    going.cancel()
