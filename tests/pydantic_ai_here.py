"""An agent of Pydantic AI whose model is a function: what the tests of its adapter have in common."""

from __future__ import annotations

import asyncio
import functools
import time

from pydantic import BaseModel
from pydantic_ai import (
    Agent,
)
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

import policy_lang
from engine.adapters.pydantic_ai import PolicyCapability


def policy(rules: str = "") -> object:
    return policy_lang.loads(f'policy "p" lang 1\n{rules}')


THREE = "limits {\n  llm_calls  3\n}\n"
FINAL = 'limits {\n  llm_calls  2  then finalize "Answer now."\n}\n'


def in_a_loop(test):
    @functools.wraps(test)
    def run(**given):
        asyncio.run(asyncio.wait_for(test(**given), 60))

    return run


class Model:
    """A model that says one thing after the other, the last one always; ``asked`` are the requests it has got."""

    def __init__(self, *replies: object) -> None:
        self.replies = list(replies)
        self.asked: list[tuple[list[object], AgentInfo]] = []
        self.model = FunctionModel(self._say, stream_function=self._stream, model_name="own")

    def _next(self, messages: list[object], info: AgentInfo) -> object:
        self.asked.append((messages, info))
        found = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def _say(self, messages, info):
        found = self._next(messages, info)
        return ModelResponse([TextPart(found)] if isinstance(found, str) else list(found))

    async def _stream(self, messages, info):
        found = self._next(messages, info)
        if isinstance(found, str):
            for word in found.split(" "):
                if word == "BREAK":
                    raise ConnectionError("cut")
                yield word + " "
                await asyncio.sleep(0)
        else:
            for i, part in enumerate(found):
                yield {i: DeltaToolCall(part.tool_name, part.args_as_json_str(), part.tool_call_id)}


def calls(*names: str, **args: object) -> list[ToolCallPart]:
    return [ToolCallPart(name, dict(args), f"{name}-{time.monotonic_ns()}-{i}") for i, name in enumerate(names)]


def agent(model: Model, capability: PolicyCapability, **more: object) -> Agent:
    made = Agent(model.model, capabilities=[capability], **more)

    @made.tool_plain
    def search(q: str = "") -> str:
        return f"found {q}"

    return made


class City(BaseModel):
    name: str


def city(**args: object) -> list[ToolCallPart]:
    return calls("final_result", **args)
