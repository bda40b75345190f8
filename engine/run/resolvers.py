"""The host's named functions that a policy asks for a text, each with a time limit.

Never raises (but for a cancellation): an unknown name, an exception, a value that is no text and a
timeout are all an answer, and the policy's next step follows.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from engine.core.decisions import Resolve
from engine.core.events import Resolved
from engine.core.messages import Message
from engine.run.cancellation import from_outside, must_pass
from engine.run.results import brief, clean, described


@dataclass(frozen=True, slots=True)
class ResolverContext:
    """Why a text is asked for: the resource whose limit is reached, and the conversation so far."""

    run: str
    thread: str | None
    resource: str
    used: int
    maximum: int
    messages: Sequence[Message]


Resolver = Callable[[ResolverContext], "str | Awaitable[str | None] | None"]
"""Returns the text; ``None`` or blank text means the default one."""


async def ask(
    resolver: Resolver | None,
    decision: Resolve,
    context: ResolverContext,
    now: Callable[[], int],
    put: Callable[[Message], str],
) -> tuple[Resolved, str]:
    """The resolver's answer as an event, and in words what was wrong with it (empty if nothing was).

    A synchronous resolver runs on the event loop, so it must be quick.
    """

    def answer(status: str, ref: str = "", problem: str = "") -> tuple[Resolved, str]:
        return Resolved(now(), decision.name, status, ref), problem  # type: ignore[arg-type]

    if resolver is None:
        return answer("failed", problem=f"there is no resolver named `{decision.name}`")
    try:
        value = resolver(context)
        if inspect.isawaitable(value):
            value = await value
    except asyncio.CancelledError as exc:
        if from_outside():
            raise
        return answer("failed", problem=f"resolver `{decision.name}` was cancelled: {brief(exc)}")
    except BaseException as exc:
        if must_pass(exc):
            raise
        return answer("failed", problem=f"resolver `{decision.name}` failed: {described(exc)}")
    if value is not None and not isinstance(value, str):
        return answer("failed", problem=f"resolver `{decision.name}` returned `{type(value).__name__}`, not a text")
    if value is None or not value.strip():
        return answer("empty")
    return answer("ok", put(Message(role="user", text=clean(value))))
