"""Worlds in a plain loop over LiteLLM."""

from __future__ import annotations

import asyncio
from typing import Any

import litellm
import openai
from adapter_worlds import Stage

from engine.adapters.litellm import HOST, guard

__all__ = ["DIFFERENT", "HOST", "LACKS", "play"]

LACKS: dict[str, str] = {}
DIFFERENT: dict[str, str] = {}


async def play(stage: Stage) -> list[tuple[str, str]]:
    world = stage.world
    outcomes = []
    messages: list[Any] = []
    models = {
        name: {"model": f"openai/{name}", "api_base": f"{stage.url}/v1", "api_key": "none"} for name in world.clients
    }
    guarded = guard(stage.policy, models, tools=stage.tools, approver=lambda request: world.grants)
    for question in stage.questions:
        messages.append({"role": "user", "content": question})
        with guarded.arun(thread="t") as run:
            going = asyncio.ensure_future(_loop(run, messages, guarded.declared, world.stream))
            watch = asyncio.ensure_future(_cancels(stage, going))
            await asyncio.wait([going])
            watch.cancel()
            if not going.cancelled() and not isinstance(going.exception(), openai.APIError):
                going.result()
        assert run.outcome is not None
        outcomes.append((run.outcome.status, run.outcome.reason))
    return outcomes


async def _loop(run: Any, messages: list[Any], tools: list[Any], stream: bool) -> None:
    while True:
        reply: Any = await run.acompletion(messages=messages, tools=tools, stream=stream)
        if stream:
            reply = litellm.stream_chunk_builder([piece async for piece in reply], messages=messages)
        message = reply.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return
        messages += await asyncio.gather(*(run.tool(call) for call in message.tool_calls))


async def _cancels(stage: Stage, going: asyncio.Future[None]) -> None:
    await stage.cancelled.wait()
    going.cancel()
