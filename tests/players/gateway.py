"""A plain loop with the ``openai`` SDK that knows nothing of policies: its base URL is a gateway's."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

from adapter_worlds import Stage
from openai import AsyncOpenAI

from engine.gateway import Gateway, Route
from engine.gateway.keys import key_of
from engine.run.results import failure
from engine.run.tools import Tool
from engine.store import MemoryStore

HOST = "gateway"
LACKS = {
    "approval": "a gateway has nobody to ask: such a call is refused",
    "cancel": "a client that leaves ends an attempt, not the run: it may come back",
}
DIFFERENT = {
    "misfit": "whether arguments fit a tool is known to the client alone, which answers in its own words",
}
_MOST = 30


async def play(stage: Stage) -> list[tuple[str, str]]:
    world = stage.world
    routes = tuple(Route(name, "openai", name) for name in world.clients[1:])
    failed = r"\AThe tool `\w+` failed: "
    gateway = Gateway(stage.policy, stage.url, clients=routes, journal=MemoryStore(), tool_failure=failed)
    outcomes = []
    async with gateway, AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0) as client:
        for question in stage.questions:
            run = uuid.uuid4().hex
            headers = {"x-policy-run": run, "x-policy-thread": "t"}
            await _loop(stage, client.with_options(default_headers=headers), question)
            known = gateway.runs.get(run, key_of({"authorization": "Bearer none"}))
            assert known is not None
            outcome = known.session.outcome
            assert outcome is not None
            outcomes.append((outcome.status, outcome.reason))
    return outcomes


async def _loop(stage: Stage, client: AsyncOpenAI, question: str) -> None:
    """Call, run what is asked for, call again: until there is an answer or an error."""
    tools = {tool.__name__: tool for tool in stage.tools}
    messages: list[Any] = [{"role": "user", "content": question}]
    for _ in range(_MOST):
        try:
            message = await _said(stage, client, messages, tools)
        except Exception:
            return
        messages.append(message)
        if not message.get("tool_calls"):
            return
        messages += await asyncio.gather(*(_result(tools, call) for call in message["tool_calls"]))


async def _said(stage: Stage, client: AsyncOpenAI, messages: list[Any], tools: dict[str, Any]) -> dict[str, Any]:
    asked = {"model": stage.world.clients[0], "messages": messages, "tools": [_declared(t) for t in tools.values()]}
    if not stage.world.stream:
        reply = await client.chat.completions.create(**asked)
        return reply.choices[0].message.model_dump(exclude_none=True)
    async with client.chat.completions.stream(**asked) as stream:
        async for _ in stream:
            pass
        reply = await stream.get_final_completion()
    return reply.choices[0].message.model_dump(exclude_none=True, exclude={"parsed"})


async def _result(tools: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    name = call["function"]["name"]
    try:
        text = await tools[name](**json.loads(call["function"]["arguments"]))
    except Exception as exc:
        text = failure(name, exc).text
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


def _declared(tool: Any) -> dict[str, Any]:
    spec = Tool(tool).spec
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}
