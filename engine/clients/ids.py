"""Tool call ids that a provider accepts, made from whatever ids the conversation has.

Ids in a conversation need to be unique only within a reply, and may come from another provider
or from the driver; a provider may want them unique in the whole request, short, of few characters.
The same conversation gives the same ids, and a longer one keeps those of its beginning, so that
prompt caches stay valid.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Sequence
from typing import Final

from engine.core.messages import Message

PLAIN_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""Accepted by every provider we know. OpenAI limits the length, Anthropic the characters."""


def wire_ids(messages: Sequence[Message]) -> list[tuple[str, ...]]:
    """For each message the ids to send: of its calls, or, for a ``tool`` message, of the call it answers.

    The k-th result with some id belongs to the k-th call with it in the last assistant message that
    has calls. A result that belongs to no call keeps its own id: the provider will say so.
    """
    used: set[str] = set()
    open_calls: dict[str, deque[str]] = {}
    out: list[tuple[str, ...]] = []
    for message in messages:
        if message.role == "tool":
            own = message.tool_call_id or ""
            waiting = open_calls.get(own)
            out.append((waiting.popleft() if waiting else own,))
        elif message.tool_calls:
            ids = []
            open_calls = {}
            for call in message.tool_calls:
                ids.append(wire := _fresh(call.id, used))
                open_calls.setdefault(call.id, deque()).append(wire)
            out.append(tuple(ids))
        else:
            out.append(())
    return out


def _fresh(wanted: str, used: set[str]) -> str:
    base = wanted if PLAIN_ID.fullmatch(wanted) else _plain(wanted)
    candidate, n = base, 1
    while candidate in used:
        n += 1
        candidate = f"{base[:32]}_{n}"
    used.add(candidate)
    return candidate


def _plain(wanted: str) -> str:
    if not wanted:
        return "call"
    digest = hashlib.sha256(wanted.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', wanted)[:24]}_{digest}"
