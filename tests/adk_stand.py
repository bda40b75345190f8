"""Agents of Google ADK on a rehearsed provider, under a policy."""

from __future__ import annotations

import asyncio
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.genai import types
from players.google_adk import model

import policy_lang
from engine.adapters.google_adk import PolicyPlugin
from engine.rehearsal import Rehearsal, Script, ScriptedCall, ScriptedReply

ANSWER = ScriptedReply(text="It is 42.", times="always")
CALLS = "limits {\n  llm_calls  2  then finalize\n}\n"


def ask(*names: str, **arguments: Any) -> ScriptedReply:
    return ScriptedReply(calls=tuple(ScriptedCall(name, arguments or {"q": "x"}) for name in names))


def load(rules: str = "") -> Any:
    return policy_lang.loads(f'policy "p" lang 1\n{rules}')


async def search(q: str) -> str:
    """Search."""
    return f"found {q}"


class Stand:
    """A rehearsed provider, a plugin on it, and a runner."""

    def __init__(self, server: Rehearsal, rules: str = "", **given: Any) -> None:
        self.server, self.outcomes = server, []
        clients = given.pop("clients", ("main",))
        self.policy = PolicyPlugin(
            load(rules), {name: model(name, server.url) for name in clients}, on_end=self.outcomes.append, **given
        )
        self.runner: InMemoryRunner = None  # type: ignore[assignment]

    def agent(self, name: str = "agent", **given: Any) -> LlmAgent:
        return LlmAgent(name=name, **{"model": self.policy.model, "tools": [search], **given})

    async def start(self, agent: Any = None) -> str:
        self.runner = InMemoryRunner(agent or self.agent(), app_name="app", plugins=[self.policy])
        return await self.session()

    async def session(self) -> str:
        return (await self.runner.session_service.create_session(app_name="app", user_id="u")).id

    async def say(self, session: str, *parts: types.Part, **given: Any) -> list[Any]:
        message = types.Content(role="user", parts=list(parts) or [types.Part(text="What is the answer?")])
        going = self.runner.run_async(user_id="u", session_id=session, new_message=message, **given)
        return [event async for event in going]


def played(replies: tuple[ScriptedReply, ...], going: Any, rules: str = "", **given: Any) -> Stand:
    with Rehearsal(Script(replies, "adk")) as server:
        stand = Stand(server, rules, **given)
        asyncio.run(asyncio.wait_for(going(stand), 60))
    return stand


def text(event: Any) -> str:
    return "".join(part.text or "" for part in (event.content.parts if event.content else ()) or ())
