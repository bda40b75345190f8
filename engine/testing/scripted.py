"""A drawn world for the real driver: a model that plays its turns, and tools that do what their arguments say.

What becomes of a tool call stands in its own arguments, so that a run can be read, and repeated, without the script.
Everything is a coroutine and waits in the loop's own time. Left out is what only a host does that is not ours: usage
told in pieces, tokens of tools, arguments edited by a person, attempts that are lost.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable
from typing import Any

from engine.clients.base import ModelError, OnDelta
from engine.core.messages import Message, Reply, Request, ToolCall
from engine.run.results import Answer, StopRun
from engine.run.tools import Tool as RealTool
from engine.testing.scripts import ANSWER, Tool, Turn, World


class ScriptedModel:
    """A client that plays the turns of a world, each after some of the loop's time; behind them it answers.

    A request that comes again (with the same key) gets what it got before, as from a provider that keeps to keys.
    ``requests`` are those that it has seen.
    """

    wire = "scripted"

    def __init__(self, world: World, draws: random.Random, name: str = "main") -> None:
        self.name, self.model = name, world.model
        self.requests: list[Request] = []
        self._left = list(world.turns)
        self._draws = draws
        self._said: dict[str | None, Reply | ModelError] = {}

    async def complete(
        self,
        request: Request,
        *,
        on_delta: OnDelta | None = None,
        timeout: float | None = None,
        idempotency_key: str | None = None,
    ) -> Reply:
        """The next turn. Raises ``ModelError`` where it fails."""
        await asyncio.sleep(self._draws.choice((0, 0.001, 0.5)))
        if idempotency_key is None or idempotency_key not in self._said:
            self.requests.append(request)
            turn = self._left.pop(0) if self._left else ANSWER
            self._said[idempotency_key] = _said(turn, request, len(self.requests))
        said = self._said[idempotency_key]
        if isinstance(said, ModelError):
            raise ModelError(said.reason, said.message, retry_after_ms=said.retry_after_ms, usage=said.usage)
        return said

    async def aclose(self) -> None:
        """Nothing is open."""


def _said(turn: Turn, request: Request, number: int) -> Reply | ModelError:
    if turn.failure:
        return ModelError(turn.failure, "as scripted", retry_after_ms=turn.retry_after, usage=turn.usage)
    offered = bool(request.tools) and request.tool_choice != "none"
    tools = turn.tools if offered or turn.stubborn else ()
    made = [tool for tool in tools if tool.kind == "function"]
    calls = tuple(ToolCall(f"c{number}-{n}", tool.name, _arguments(tool)) for n, tool in enumerate(made))
    said = turn.text or (turn.tools and not calls) or turn.finish != "stop"
    text = "" if calls or not said else "Done."
    return Reply(Message("assistant", text, calls), "tool_calls" if calls else turn.finish, turn.usage)


def _arguments(tool: Tool) -> str:
    if tool.problem:
        return '{"does": 7'
    does = tool.ends or tool.status
    return json.dumps({"does": does, "recovers": tool.recovers, "key": tool.args, "result": tool.result})


def scripted_tools(names: Iterable[str], draws: random.Random) -> list[RealTool]:
    """Tools of these names that do what their arguments say, after some of the loop's time."""
    return [RealTool(_tool(draws), name=name) for name in names]


def _tool(draws: random.Random) -> Any:
    tries: dict[str, int] = {}

    async def scripted(does: str = "ok", recovers: int = 0, key: str = "", result: str = "") -> Any:
        """Does as it is told."""
        await asyncio.sleep(draws.choice((0, 0.001, 0.02, 2.0)))
        tries[key] = tries.get(key, 0) + 1
        if does == "answer":
            return Answer("The tool's own answer.")
        if does == "stop":
            raise StopRun("as scripted")
        if does != "ok" and not (recovers and tries[key] >= recovers):
            raise RuntimeError("as scripted")
        return result or f"result {draws.randrange(1_000)}"

    return scripted


def names_of(world: World) -> list[str]:
    """The tools that a host must have for a world: those that are registered."""
    return list(dict.fromkeys(tool.name for turn in world.turns for tool in turn.tools if tool.registered))
