"""Chat clients of the Microsoft Agent Framework: without limits and retries of their own, and what these are."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

_FAR = 1_000_000_000
_PUSHED_OUT: dict[str, Any] = {
    "max_iterations": _FAR,
    "max_function_calls": None,
    "max_duration_seconds": None,
    "max_consecutive_errors_per_request": _FAR,
    "terminate_on_unknown_calls": False,
}
"""The limits of the framework's function loop, and where they are out of a policy's way."""
_UNSET: dict[str, Any] = {"max_iterations": 40, "max_consecutive_errors_per_request": 3}


def model_of(client: Any) -> str:
    return str(getattr(client, "model", None) or "")


def wire_of(client: Any) -> str:
    return str(getattr(client, "OTEL_PROVIDER_NAME", "") or "").partition(".")[0]


def governed(client: Any, *, loop: bool) -> Any:
    """A copy that shares connections with the client, without its retries; with a boundless function loop, or none."""
    ours = copy.copy(client)
    for name, sdk in _sdks(client):
        setattr(ours, name, sdk.with_options(max_retries=0))
    limits = getattr(client, "function_invocation_configuration", None)
    if limits is not None:
        ours.function_invocation_configuration = {**limits, **(_PUSHED_OUT if loop else {"enabled": False})}
    return ours


def _sdks(client: Any) -> Iterable[tuple[str, Any]]:
    """The clients of providers' SDKs in a chat client, by attribute."""
    for name, value in vars(client).items():
        if callable(getattr(value, "with_options", None)) and isinstance(getattr(value, "max_retries", None), int):
            yield name, value


def unused(client: Any) -> Iterable[str]:
    """What somebody has set on the client, and is not used under the policy."""
    limits = getattr(client, "function_invocation_configuration", None) or {}
    for name, far in _PUSHED_OUT.items():
        if name in limits and limits[name] not in (far, _UNSET.get(name)):
            yield f"`{name}={limits[name]}` of the client is not used: the policy limits the run"


def _loop_of(client: Any) -> Iterable[str]:
    limits = getattr(client, "function_invocation_configuration", None) or {}
    for name, far in _PUSHED_OUT.items():
        if name in limits and limits[name] != far:
            yield f"the agent's client has `{name}={limits[name]}`"


def _retries_of(client: Any) -> Iterable[str]:
    for _, sdk in _sdks(client):
        if sdk.max_retries:
            yield f"the agent's client retries {sdk.max_retries} times by itself"


def fighting(client: Any) -> tuple[str, ...]:
    """What an agent's client does by itself, and a policy does not know of."""
    return (*_loop_of(client), *_retries_of(client))
