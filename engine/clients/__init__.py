"""Clients of language models: one attempt on the wire each, failures with a reason.

Importing this package imports no HTTP library; the clients themselves are loaded when named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.clients.base import Bounds, Client, ClientConfigError, ModelError, OnDelta

if TYPE_CHECKING:
    from engine.clients.anthropic import Anthropic
    from engine.clients.openai_chat import OpenAIChat
    from engine.clients.spec import from_spec

_LAZY = {
    "Anthropic": "engine.clients.anthropic",
    "OpenAIChat": "engine.clients.openai_chat",
    "from_spec": "engine.clients.spec",
}

__all__ = [
    "Anthropic",
    "Bounds",
    "Client",
    "ClientConfigError",
    "ModelError",
    "OnDelta",
    "OpenAIChat",
    "from_spec",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
