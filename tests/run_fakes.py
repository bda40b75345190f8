"""A scripted model, and short ways to write replies and policies, for tests of the driver."""

from __future__ import annotations

import asyncio
import inspect
import itertools

from engine.core.messages import Message, Reply, Request, ToolCall, Usage
from engine.core.policy import Extend, Finalize, Limit, Policy
from engine.core.transcript import problems

FINALIZE = (Finalize(),)


class Model:
    """A client that plays a script: replies, exceptions to raise, or functions of the request that make either.

    Behind the end of the script it goes on with ``then``, or fails the test. ``requests`` is what it received.
    """

    wire = "fake"

    def __init__(self, *script, then=None, name="main", model="fake-1"):
        self.script = list(script)
        self.then = then
        self.name = name
        self.model = model
        self.requests: list[Request] = []
        self.keys: list[str | None] = []
        self.cancelled = 0
        self.closed = False

    async def complete(self, request, *, on_delta=None, timeout=None, idempotency_key=None):
        self.requests.append(request)
        self.keys.append(idempotency_key)
        if self.script:
            item = self.script.pop(0)
        else:
            assert self.then is not None, "the model was called more often than its script says"
            item = self.then
        try:
            if callable(item):
                item = item(request, on_delta) if len(inspect.signature(item).parameters) == 2 else item(request)
                if inspect.isawaitable(item):
                    item = await item
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(item, BaseException):
            raise item
        return item

    async def aclose(self):
        self.closed = True


_ids = itertools.count()


def says(text, *, usage=Usage(input=10, output=5), finish="stop"):  # noqa: B008 - a frozen record
    return Reply(Message("assistant", text), finish, usage)


def asks(*calls, text="", usage=Usage(input=10, output=5)):  # noqa: B008 - a frozen record
    """A reply with tool calls, each a name or (name, arguments as JSON text)."""
    made = []
    for call in calls:
        name, arguments = call if isinstance(call, tuple) else (call, "{}")
        made.append(ToolCall(f"call-{next(_ids)}", name, arguments))
    return Reply(Message("assistant", text, tuple(made)), "tool_calls", usage)


async def forever(request):
    await asyncio.Event().wait()


def limits(**maxima):
    """A policy: each value is a maximum, or (maximum, ladder)."""
    made = []
    for resource, value in maxima.items():
        maximum, ladder = value if isinstance(value, tuple) else (value, ())
        made.append(Limit(resource=resource, max=maximum, then=ladder))
    return Policy(name="test", limits=tuple(made))


def roles(result):
    return [m.role for m in result.messages]


def assert_valid(messages):
    """A provider would accept these messages again."""
    assert problems(messages) == []


__all__ = ["FINALIZE", "Extend", "Model", "asks", "assert_valid", "forever", "limits", "roles", "says"]
