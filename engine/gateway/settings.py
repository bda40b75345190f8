"""What a gateway is set up with. Data and its checks; knows no HTTP."""

from __future__ import annotations

import os
from typing import Any, Final, Literal

from msgspec import Struct

from engine.clients.address import checked_base_url
from engine.clients.base import ClientConfigError
from engine.clients.spec import PROVIDERS

MAIN: Final = "main"
"""The name of the client that is asked first: the model that a request names, at the upstream."""

Refuse = Literal["message", "error"]


class GatewayError(Exception):
    """A gateway cannot be set up so, or cannot listen. The message says what to do."""


class Bounds(Struct, frozen=True):
    """What one client may cost the gateway. Sizes in bytes, times in seconds."""

    request_bytes: int = 32 * 1024 * 1024
    reply_bytes: int = 32 * 1024 * 1024
    """Of a whole reply, and of one event of a stream."""
    requests: int = 1_000
    """Requests in hand; one more is answered with status 503."""
    request_seconds: float = 60
    """For a client to send its request, and to take in each piece of the answer."""
    upstream_seconds: float = 600
    """The longest silence of an upstream. The time of a whole attempt is the policy's (``attempt_wall``)."""
    runs: int = 10_000
    """Runs in memory; the longest unused is forgotten, and taken up from the journal, if there is one."""
    idle_seconds: float = 24 * 3600
    """A run that nobody has asked for so long is forgotten, too."""


class Route(Struct, frozen=True):
    """A client that a policy may switch to. ``wire`` is ``openai`` or ``anthropic``; without a ``url`` it is another
    model at the same upstream, with the key of the client that asks. With one, the key in the environment variable
    ``key_env`` (empty: none is sent)."""

    name: str
    wire: str
    model: str
    url: str = ""
    key_env: str = ""

    @property
    def key(self) -> str:
        return os.environ.get(self.key_env, "").strip() if self.key_env else ""


def checked(routes: tuple[Route, ...]) -> dict[str, Route]:
    """The routes by name. Raises ``GatewayError``."""
    found: dict[str, Route] = {}
    for route in routes:
        if route.wire not in PROVIDERS:
            raise GatewayError(
                f"client `{route.name}`: unknown provider `{route.wire}` (known: {', '.join(PROVIDERS)})"
            )
        if route.name in found or route.name == MAIN:
            raise GatewayError(f"there are two clients named `{route.name}`")
        if route.url:
            checked_url(route.url)
        if route.key_env and not route.key:
            raise GatewayError(f"client `{route.name}`: no key; set the environment variable {route.key_env}")
        found[route.name] = route
    return found


def checked_url(text: str) -> str:
    """A base URL without its last slash. Raises ``GatewayError``."""
    try:
        return str(checked_base_url(text)).rstrip("/")
    except ClientConfigError as exc:
        raise GatewayError(str(exc)) from None


Json = dict[str, Any]
