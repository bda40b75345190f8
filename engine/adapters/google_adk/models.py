"""Models of Google ADK: one that a policy stands before, and copies without retries of their own."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, Any

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from pydantic import PrivateAttr

if TYPE_CHECKING:
    from google.adk.models._capabilities import LlmCapabilities

    from engine.adapters.google_adk.plugin import PolicyPlugin

_OF_LITELLM = ("num_retries", "max_retries", "fallbacks", "context_window_fallback_dict")


class GovernedLlm(BaseLlm):
    """A client of a policy, to be an agent's ``model``. It works where the runner has the policy's plugin only."""

    _policy: Any = PrivateAttr()
    _name: str = PrivateAttr()

    def __init__(self, policy: PolicyPlugin, name: str, inner: BaseLlm) -> None:
        super().__init__(model=inner.model)
        self._policy, self._name = policy, name

    @property
    def capabilities(self) -> LlmCapabilities:
        inner: BaseLlm = self._policy.clients[self._name]
        return inner.capabilities

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        going = self._policy.taken(llm_request, self._name, stream)
        try:
            async for piece in going:
                yield piece
        finally:
            await going.aclose()


def unretried(model: BaseLlm) -> BaseLlm:
    """A copy that shares what it can with the model, and makes one attempt at a time."""
    if getattr(model, "retry_options", None) is not None:
        return model.model_copy(update={"retry_options": None})
    given = getattr(model, "_additional_args", None)
    if not isinstance(given, dict):
        return model
    ours = copy.copy(model)
    kept = {name: value for name, value in given.items() if name not in _OF_LITELLM}
    setattr(ours, "_additional_args", {**kept, "max_retries": 0, "num_retries": 0})  # noqa: B010
    return ours


def unused(model: BaseLlm) -> Iterable[str]:
    """What somebody has set on a model, and is not used under a policy."""
    options = getattr(model, "retry_options", None)
    if options is not None:
        yield f"`retry_options` of `{model.model}` is not used: the policy says what is retried"
    given = getattr(model, "_additional_args", None)
    for name in _OF_LITELLM:
        if isinstance(given, dict) and given.get(name):
            yield f"`{name}` of `{model.model}` is not used: the policy says what is retried, and where"
