"""The host's named functions that a policy asks for a text, or for the next step, each with a time limit.

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
    """Why the function is asked: the resource whose limit is reached, and the conversation so far.

    Where a model call has failed, ``resource`` is ``llm_failure``, ``failure`` its reason, ``error`` what was said.
    """

    run: str
    thread: str | None
    resource: str
    used: int
    maximum: int
    messages: Sequence[Message]
    failure: str = ""
    error: str = ""


Resolver = Callable[[ResolverContext], "str | Awaitable[str | None] | None"]
"""Returns the text (``None`` or blank: the default one); a consultant the verb of a step, one of ``VERBS``."""

VERBS = ("retry", "fallback", "finalize", "extend", "stop")
"""What a consultant may choose, of what follows it in its ladder."""


async def ask(
    resolver: Resolver | None,
    decision: Resolve,
    context: ResolverContext,
    now: Callable[[], int],
    put: Callable[[Message], str],
    consults: bool = False,
) -> tuple[Resolved, str]:
    """The resolver's answer as an event, and in words what was wrong with it (empty if nothing was).

    A synchronous resolver runs on the event loop, so it must be quick. ``consults``: it may choose a step.
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
    if consults and value is not None and value.strip() in VERBS:
        return Resolved(now(), decision.name, "ok", step=value.strip()), ""
    if value is None or not value.strip():
        return answer("empty")
    return answer("ok", put(Message(role="user", text=clean(value))))
