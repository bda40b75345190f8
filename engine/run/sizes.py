"""Rough sizes, for where no provider has counted: four characters are about one token."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from engine.core.messages import Message, Request, ToolSpec, Usage

_PER_TOKEN = 4


def tokens(chars: int) -> int:
    """Characters to tokens, rounded up."""
    return -(-chars // _PER_TOKEN)


def characters(message: Message) -> int:
    """How many characters of a message a model reads: its text, and the names and arguments of its calls."""
    size = len(message.text)
    for call in message.tool_calls:
        size += len(call.name) + len(call.arguments)
    return size


def declared(tools: Iterable[ToolSpec]) -> int:
    """How many characters the declarations of these tools have."""
    return sum(len(tool.name) + len(tool.description) + len(msgspec.json.encode(tool.parameters)) for tool in tools)


def guessed(request: Request, answer: Message) -> Usage:
    """The usage of an attempt whose provider reported none."""
    sent = sum(map(characters, request.messages)) + declared(request.tools)
    return Usage(input=tokens(sent), output=tokens(characters(answer)))
