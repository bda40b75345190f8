"""What of an agent's own limits and retries would fight a policy, told where the agent and its runs begin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import UsageLimits

from engine.core.policy import Policy

_COUNTED = {
    "request_limit": "llm_calls",
    "tool_calls_limit": "tool_calls",
    "input_tokens_limit": "input_tokens",
    "output_tokens_limit": "output_tokens",
    "total_tokens_limit": "tokens",
}
"""The framework's limits, and which of ours count the same."""
_UNSET = UsageLimits()


def limits(policy: Policy, given: UsageLimits | None) -> Iterator[str]:
    """Limits of a run that end it before the policy does, by an exception instead of an answer."""
    for name, resource in _COUNTED.items():
        theirs = getattr(given, name, None)
        if theirs is None:
            continue
        ours = [limit.max for limit in policy.limits if limit.resource == resource and limit.max is not None]
        if ours and min(ours) <= theirs:
            continue
        if not ours and theirs == getattr(_UNSET, name):
            continue
        known = f"the policy's {resource} {min(ours)}" if ours else "the policy, which has no such limit,"
        yield f"UsageLimits({name}={theirs}) raises UsageLimitExceeded before {known} ends the run: set it to None"
    if given is not None and given.cost_limit is not None:
        yield "UsageLimits(cost_limit=...) raises UsageLimitExceeded, whatever the policy says: limit `cost` there"


def model(found: Any) -> Iterator[str]:
    """Models that send a request more often than the policy sees, or to others."""
    inner = found
    while isinstance(inner, WrapperModel):
        inner = inner.wrapped
    if isinstance(inner, FallbackModel):
        yield "FallbackModel falls back by itself, unseen and uncounted: say `fallback` in the policy, with `models`"
    elif isinstance(inner, Model) and "Tenacity" in _transport(inner):
        yield "the model's HTTP client tries again by itself, unseen and uncounted: say `retry` in the policy"


def _transport(inner: Model) -> str:
    """What sends the requests of an SDK's client, by its class's name."""
    http = getattr(getattr(inner, "client", None), "_client", None)
    return type(getattr(http, "_transport", None)).__name__


def agent(found: Any) -> Iterator[str]:
    """Retries of an agent that end a run by an exception."""
    given = found.output_type
    types = given if isinstance(given, list | tuple) else [given]
    retries = getattr(found, "_max_output_retries", None)
    if retries is not None and any(each not in (str, DeferredToolRequests) for each in types):
        yield (
            f"the agent raises UnexpectedModelBehavior after {retries + 1} answers that do not fit its output type, "
            "whatever the policy says: `retries` of the agent sets how many"
        )
