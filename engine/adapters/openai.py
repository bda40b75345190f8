"""A policy over a loop that calls the OpenAI SDK: ``guard(client, policy)``.

Chat completions are governed, whole and streamed, with every helper that the SDK has for them. The SDK's own retries
are off: how often a call is made is the policy's to say.
"""

from __future__ import annotations

from typing import Any, Unpack, overload

try:
    from openai import AsyncOpenAI, OpenAI
    from openai._models import FinalRequestOptions
except ImportError as exc:
    raise ImportError("loops with the OpenAI SDK need it: pip install 'policy-lang[openai]'") from exc

from engine.adapters.sdk import AsyncGuard, Guard
from engine.adapters.sdk_openai import declared, read, result
from engine.adapters.sdk_options import Face, Options
from engine.core.policy import Policy
from engine.core.step import Compiled
from engine.gateway.openai_wire import OpenAIWire
from engine.gateway.wires import Json

HOST = "openai"


def _options(path: str, body: Json) -> Any:
    return FinalRequestOptions.construct(method="post", url=path, json_data=body)


_FACE = Face(
    HOST,
    OpenAIWire("max_completion_tokens"),
    "/chat/completions",
    ("/responses", "/completions", "/assistants", "/threads", "/batches", "/realtime"),
    _options,
    read,
    result,
    declared,
)


@overload
def guard(client: OpenAI, policy: Policy | Compiled, **options: Unpack[Options]) -> Guard[OpenAI]: ...
@overload
def guard(client: AsyncOpenAI, policy: Policy | Compiled, **options: Unpack[Options]) -> AsyncGuard[AsyncOpenAI]: ...
def guard(client: OpenAI | AsyncOpenAI, policy: Policy | Compiled, **options: Unpack[Options]) -> Any:
    """A policy over the loops that use this client: ``with guard(...).run() as run`` is one run, and ``run.client`` its
    client. The client itself is left as it is. ``options``: see ``engine.adapters.sdk_options.Options``.

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
