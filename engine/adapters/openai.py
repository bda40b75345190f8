"""A policy over a loop that calls the OpenAI SDK: ``guard(client, policy)``.

Chat completions are governed, whole and streamed, with every helper that the SDK has for them. The SDK's own retries
are off: how often a call is made is the policy's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack, overload

try:
    from openai import AsyncOpenAI, OpenAI
    from openai._models import FinalRequestOptions
except ImportError as exc:
    raise ImportError("loops with the OpenAI SDK need it: pip install 'policy-lang[openai]'") from exc

from engine.adapters.sdk import AsyncGuard, Face, Guard, Options
from engine.clients.wire import dict_of, text_of
from engine.core.messages import ToolCall, ToolSpec
from engine.core.policy import Policy
from engine.core.step import Compiled
from engine.gateway.openai_wire import OpenAIWire
from engine.gateway.wires import Json

HOST = "openai"


def _options(path: str, body: Json) -> Any:
    return FinalRequestOptions.construct(method="post", url=path, json_data=body)


def _read(call: Any) -> ToolCall:
    if isinstance(call, Mapping):
        function = dict_of(call.get("function"))
        return ToolCall(text_of(call.get("id")), text_of(function.get("name")), text_of(function.get("arguments")))
    return ToolCall(call.id, call.function.name, call.function.arguments)


def _result(id: str, text: str, failed: bool) -> Json:
    # The format has no flag for a failed call; its text must say it, so it may not be empty.
    return {"role": "tool", "tool_call_id": id, "content": text or ("The call failed." if failed else "")}


def _declared(spec: ToolSpec) -> Json:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


_FACE = Face(
    HOST,
    OpenAIWire("max_completion_tokens"),
    "/chat/completions",
    ("/responses", "/completions", "/assistants", "/threads", "/batches", "/realtime"),
    _options,
    _read,
    _result,
    _declared,
)


@overload
def guard(client: OpenAI, policy: Policy | Compiled, **options: Unpack[Options]) -> Guard[OpenAI]: ...
@overload
def guard(client: AsyncOpenAI, policy: Policy | Compiled, **options: Unpack[Options]) -> AsyncGuard[AsyncOpenAI]: ...
def guard(client: OpenAI | AsyncOpenAI, policy: Policy | Compiled, **options: Unpack[Options]) -> Any:
    """A policy over the loops that use this client: ``with guard(...).run() as run`` is one run, and ``run.client`` its
    client. The client itself is left as it is. ``options``: see ``engine.adapters.sdk.Options``.

    Raises:
        RunError: the policy names a client that is not there.
        TypeError: ``client`` is no client of the SDK, the policy is none, or there is no such option.
    """
    if isinstance(client, OpenAI):
        return Guard(_FACE, client, policy, options)
    if isinstance(client, AsyncOpenAI):
        return AsyncGuard(_FACE, client, policy, options)
    raise TypeError(f"`client` must be an OpenAI or AsyncOpenAI client, not {type(client).__name__}")


__all__ = ["HOST", "guard"]
