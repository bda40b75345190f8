"""What the tests of the gateway share: a rehearsed provider with a gateway before it, and policies in few words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import policy_lang
from engine.core.policy import Policy
from engine.gateway import Gateway
from engine.rehearsal import Rehearsal, Script, ScriptedReply

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("search", "pay")
]
ANTHROPIC_TOOLS = [{"name": name, "input_schema": {"type": "object", "properties": {}}} for name in ("search", "pay")]
QUESTION = {"role": "user", "content": "What is the answer?"}


def policy(rules: str = "", name: str = "desk") -> Policy:
    return policy_lang.loads(f'policy "{name}" lang 1\n{rules}')


def limits(*lines: str) -> str:
    return "limits {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


@asynccontextmanager
async def governed(
    rules: str | Policy, *replies: ScriptedReply | dict[str, Any], **options: Any
) -> AsyncIterator[tuple[Gateway, Rehearsal]]:
    """A gateway under these rules, before a provider that says this."""
    under = rules if isinstance(rules, Policy) else policy(rules)
    async with Rehearsal(Script.of(*replies)) as server, Gateway(under, server.url, **options) as gateway:
        yield gateway, server
