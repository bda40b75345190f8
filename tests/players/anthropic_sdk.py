"""Worlds in a plain loop over the Anthropic SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
from adapter_worlds import Stage

from engine.adapters.anthropic import HOST, guard

__all__ = ["DIFFERENT", "HOST", "LACKS", "play"]

LACKS: dict[str, str] = {}
DIFFERENT = {
    "not_json": "arguments are an object in the Messages format: text that is no JSON never arrives as it was written",
}
_KEPT = {"type", "text", "id", "name", "input"}


async def play(stage: Stage) -> list[tuple[str, str]]:
    world = stage.world
    outcomes = []
    messages: list[Any] = []
    async with anthropic.AsyncAnthropic(api_key="none", base_url=stage.url) as client:
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
                if not going.cancelled() and not isinstance(going.exception(), anthropic.APIError):
                    going.result()
            assert run.outcome is not None
            outcomes.append((run.outcome.status, run.outcome.reason))
    return outcomes


async def _loop(run: Any, messages: list[Any], tools: list[Any], stream: bool) -> None:
    asked: dict[str, Any] = {"model": "main", "max_tokens": 1000, "messages": messages, "tools": tools}
    while True:
        if stream:
            async with run.client.messages.stream(**asked) as pieces:
                reply = await pieces.get_final_message()
        else:
            reply = await run.client.messages.create(**asked)
        messages.append({"role": "assistant", "content": [block.model_dump(include=_KEPT) for block in reply.content]})
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            return
        messages.append({"role": "user", "content": await asyncio.gather(*(run.tool(call) for call in calls))})


async def _cancels(stage: Stage, going: asyncio.Future[None]) -> None:
    await stage.cancelled.wait()
    going.cancel()
