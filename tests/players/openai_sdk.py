"""Worlds in a plain loop over the OpenAI SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
from adapter_worlds import Stage

from engine.adapters.openai import HOST, guard

__all__ = ["DIFFERENT", "HOST", "LACKS", "play"]

LACKS: dict[str, str] = {}
DIFFERENT: dict[str, str] = {}


async def play(stage: Stage) -> list[tuple[str, str]]:
    world = stage.world
    outcomes = []
    messages: list[Any] = []
    async with openai.AsyncOpenAI(api_key="none", base_url=f"{stage.url}/v1") as client:
        guarded = guard(
            client,
            stage.policy,
            models={name: name for name in world.clients[1:]},
            tools=stage.tools,
            approver=lambda request: world.grants,
        )
        for question in stage.questions:
            messages.append({"role": "user", "content": question})
            with guarded.run(thread="t") as run:
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
        completions = run.client.chat.completions
        if stream:
            async with completions.stream(model="main", messages=messages, tools=tools) as pieces:
                reply = await pieces.get_final_completion()
        else:
            reply = await completions.create(model="main", messages=messages, tools=tools)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        if not message.tool_calls:
            return
        messages += await asyncio.gather(*(run.tool(call) for call in message.tool_calls))


async def _cancels(stage: Stage, going: asyncio.Future[None]) -> None:
    await stage.cancelled.wait()
    going.cancel()
