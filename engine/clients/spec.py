"""``openai:gpt-x`` to a client: the one place that knows which providers there are."""

from __future__ import annotations

import difflib
from typing import Any

from engine.clients.anthropic import Anthropic
from engine.clients.base import ClientConfigError
from engine.clients.http_client import HttpClient
from engine.clients.openai_chat import OpenAIChat

PROVIDERS: dict[str, type[HttpClient]] = {"openai": OpenAIChat, "anthropic": Anthropic}


def from_spec(spec: str, **options: Any) -> HttpClient:
    """A client from ``PROVIDER:MODEL``. ``options`` are those of :class:`HttpClient`.

    Raises:
        ClientConfigError: unknown provider, no model, a missing key, a base URL of the wrong form.
    """
    provider, colon, model = spec.partition(":")
    kind = PROVIDERS.get(provider.strip().lower())
    known = " or ".join(f"{name}:MODEL" for name in PROVIDERS)
    if not colon or not model.strip():
        raise ClientConfigError(f"`{spec}` names no model: write {known}")
    if kind is None:
        near = difflib.get_close_matches(provider.lower(), PROVIDERS, n=1)
        hint = f"; did you mean `{near[0]}:{model}`?" if near else ""
        raise ClientConfigError(
            f"unknown provider `{provider}`{hint} (known: {known}; a compatible server is openai:MODEL with a base URL)"
        )
    return kind(model.strip(), **options)
