"""A policy over a loop that calls the Anthropic SDK: ``guard(client, policy)``.

Messages are governed, whole and streamed, with every helper that the SDK has for them. The SDK's own retries are off:
how often a call is made is the policy's to say. On a final call tools stay declared, and are forbidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack, overload

try:
    from anthropic import Anthropic, AsyncAnthropic
    from anthropic._models import FinalRequestOptions
except ImportError as exc:
    raise ImportError("loops with the Anthropic SDK need it: pip install 'policy-lang[anthropic]'") from exc

from engine.adapters.sdk import AsyncGuard, Guard
from engine.adapters.sdk_options import Face, Options
from engine.clients.wire import encode
from engine.core.messages import ToolCall, ToolSpec
from engine.core.policy import Policy
from engine.core.step import Compiled
from engine.gateway.anthropic_wire import AnthropicWire
from engine.gateway.wires import Json

HOST = "anthropic"


def _options(path: str, body: Json) -> Any:
    return FinalRequestOptions.construct(method="post", url=f"/v1{path}", json_data=body)


def _read(call: Any) -> ToolCall:
    given = call if isinstance(call, Mapping) else {"id": call.id, "name": call.name, "input": call.input}
    return ToolCall(given["id"], given["name"], encode(given.get("input") or {}).decode())


def _result(id: str, text: str, failed: bool) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": id, "content": text}
    return {**block, "is_error": True} if failed else block


def _declared(spec: ToolSpec) -> Json:
    return {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}


_FACE = Face(
    HOST, AnthropicWire(), "/messages", ("/messages/batches", "/complete"), _options, _read, _result, _declared
)


@overload
def guard(client: Anthropic, policy: Policy | Compiled, **options: Unpack[Options]) -> Guard[Anthropic]: ...
@overload
def guard(
    client: AsyncAnthropic, policy: Policy | Compiled, **options: Unpack[Options]
) -> AsyncGuard[AsyncAnthropic]: ...
def guard(client: Anthropic | AsyncAnthropic, policy: Policy | Compiled, **options: Unpack[Options]) -> Any:
    """A policy over the loops that use this client: ``with guard(...).run() as run`` is one run, and ``run.client`` its
    client. The client itself is left as it is. ``options``: see ``engine.adapters.sdk_options.Options``.

    Raises:
        RunError: the policy names a client that is not there.
        TypeError: ``client`` is no client of the SDK, the policy is none, or there is no such option.
    """
    if isinstance(client, Anthropic):
        return Guard(_FACE, client, policy, options)
    if isinstance(client, AsyncAnthropic):
        return AsyncGuard(_FACE, client, policy, options)
    raise TypeError(f"`client` must be an Anthropic or AsyncAnthropic client, not {type(client).__name__}")


__all__ = ["HOST", "guard"]
