"""What a client of a language model is: the protocol, the one error it raises, and its bounds.

Knows nothing of HTTP or of any provider, so that a fake model in a test, or a model that
runs in this process, can implement the protocol without either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from engine.core.messages import Reply, Request, Usage

OnDelta = Callable[[str], "Awaitable[None] | None"]
"""Called with each piece of text as it arrives; what it returns is awaited if it can be."""

Partial = Literal["none", "held", "delivered"]
"""What had arrived when an attempt failed: nothing, something nobody saw, or text already shown."""


class ModelError(Exception):
    """One attempt failed. ``reason`` is a key of ``engine.core.vocabulary.REASONS``.

    ``code`` is the provider's own word for it, ``status`` the HTTP status, ``text`` the part of the
    answer that had arrived, ``usage`` what the provider had reported by then. The message never
    contains a key.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        retry_after_ms: int | None = None,
        partial: Partial = "none",
        text: str = "",
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.code = code
        self.status = status
        self.retry_after_ms = retry_after_ms
        self.partial: Partial = partial
        self.text = text
        self.usage = usage

    def __repr__(self) -> str:
        return f"ModelError({self.reason!r}, {self.message!r}, code={self.code!r}, status={self.status!r})"


class ClientConfigError(ValueError):
    """A client cannot be made as asked: a missing key, an unknown provider, a URL of the wrong form."""


class Bounds(Struct, frozen=True):
    """What one reply may cost us in memory; beyond it the attempt fails with ``provider``."""

    response_bytes: int = 8 * 1024 * 1024
    """Of a whole body, or of one event of a stream, unpacked. As Python objects it may take 30 times as much."""
    stream_bytes: int = 128 * 1024 * 1024
    """Of a whole stream: its events repeat much, but are read one by one."""
    tool_calls: int = 1024
    error_bytes: int = 64 * 1024
    """Of a failed response's body; the rest is not read."""


@runtime_checkable
class Client(Protocol):
    """One model behind one wire format. Never retries by itself: every attempt is the policy's to count."""

    @property
    def name(self) -> str:
        """The name a policy uses for it (``fallback NAME``)."""
        ...

    @property
    def model(self) -> str:
        """The provider's name of the model; prices are looked up by it."""
        ...

    @property
    def wire(self) -> str:
        """The wire format: part of a run's fingerprint."""
        ...

    async def complete(
        self,
        request: Request,
        *,
        on_delta: OnDelta | None = None,
        timeout: float | None = None,
        idempotency_key: str | None = None,
    ) -> Reply:
        """Send one request, once. ``timeout`` is seconds for the whole attempt.

        The driver gives none: it cancels an attempt whose time is over, and goes on without waiting for its end.

        Raises:
            ModelError: for whatever went wrong on the way, with its reason.
        """
        ...

    async def aclose(self) -> None:
        """Close connections. Harmless when called twice."""
