"""A run as its host may follow it: events for people and user interfaces, while it goes on.

They are derived from the events and decisions of the core; nothing is decided here, and nobody has to listen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from engine.core.decisions import Note, Request
from engine.core.messages import Usage
from engine.run.result import RunResult


class StreamEvent(Struct, frozen=True, tag_field="type"):
    """Base of all events of a stream."""


class RunBegan(StreamEvent, frozen=True, tag="run_began"):
    """A run goes on from here: its id is what ``resume`` takes."""

    run: str


class CallStarted(StreamEvent, frozen=True, tag="call_started"):
    """An attempt at a model starts. ``why`` is the reason of a ``final`` call."""

    call: str
    attempt: int
    client: str
    final: bool
    why: str
    because: str


class TextDelta(StreamEvent, frozen=True, tag="text_delta"):
    """A piece of text, as it arrives. ``TextRetracted`` takes back what bears the same call and attempt."""

    call: str
    attempt: int
    text: str


class TextRetracted(StreamEvent, frozen=True, tag="text_retracted"):
    """The attempt failed and the run goes on: forget its text. Sent before anything else is shown."""

    call: str
    attempt: int


class CallEnded(StreamEvent, frozen=True, tag="call_ended"):
    """An attempt ended: with ``text`` and the names of the ``tools`` it asks for, or with ``error`` (a reason)."""

    call: str
    attempt: int
    text: str = ""
    tools: tuple[str, ...] = ()
    usage: Usage | None = None
    error: str = ""
    message: str = ""


class RetryPlanned(StreamEvent, frozen=True, tag="retry_planned"):
    """A further attempt of the call follows at ``not_before`` (ms since 1970), after ``wait`` (ms).

    It is number ``retry`` of ``of`` that the policy grants for ``reason``; 0 where the call goes on after a pause.
    """

    call: str
    attempt: int
    not_before: int
    wait: int = 0
    reason: str = ""
    retry: int = 0
    of: int = 0
    because: str = ""


class ToolRetryPlanned(StreamEvent, frozen=True, tag="tool_retry_planned"):
    """An execution failed with ``text`` and is tried again at ``not_before`` (ms since 1970), after ``wait`` (ms)."""

    id: str
    name: str
    attempt: int
    not_before: int
    wait: int
    status: str
    text: str
    because: str


class ApprovalAsked(StreamEvent, frozen=True, tag="approval_asked"):
    """A person is asked, until ``until`` (ms since 1970), whether a tool call may run, or is to execute it.

    Or whether a limit may grow: then ``id`` is the limit's, and there is no ``name``. ``request`` says which it is, and
    has the numbers of the limit.
    """

    id: str
    name: str
    arguments: str
    until: int
    because: str
    request: Request | None = None


class ApprovalAnswered(StreamEvent, frozen=True, tag="approval_answered"):
    """The answer: ``granted``, ``refused``, ``expired``, or ``nobody`` where nobody can be asked.

    ``arguments`` are the edited ones, if there are; ``amount`` is how much more of a limit is granted (0: all that was
    asked for).
    """

    id: str
    name: str
    answer: str
    arguments: str = ""
    amount: int = 0


class ToolStarted(StreamEvent, frozen=True, tag="tool_started"):
    """A tool starts; ``arguments`` is the JSON the model sent."""

    id: str
    name: str
    arguments: str


class ToolFinished(StreamEvent, frozen=True, tag="tool_finished"):
    """A tool has ended, with the text the model will read."""

    id: str
    name: str
    status: str
    text: str


class ToolRefused(StreamEvent, frozen=True, tag="tool_refused"):
    """A tool call was not executed: the model reads ``text`` in its place."""

    id: str
    name: str
    text: str
    why: str
    because: str


class Noted(StreamEvent, frozen=True, tag="noted"):
    """A threshold, an extension, a warning."""

    note: Note


class Budget(StreamEvent, frozen=True, tag="budget"):
    """What a limit stands at, sent whenever that changes. ``limit`` is its name in the policy; ``unit`` is
    ``count``, ``money`` (micro-dollars) or ``duration`` (ms)."""

    limit: str
    resource: str
    unit: str
    used: int
    maximum: int


class RunEnded(StreamEvent, frozen=True, tag="run_ended"):
    """The last event of a stream."""

    result: RunResult


class Below(StreamEvent, frozen=True, tag="below"):
    """What happens to a run below this one, of which ``agent``: the event as that run's own stream would have it."""

    run: str
    agent: str
    event: StreamEvent


AnyStreamEvent = (
    RunBegan
    | CallStarted
    | TextDelta
    | TextRetracted
    | CallEnded
    | RetryPlanned
    | ToolRetryPlanned
    | ApprovalAsked
    | ApprovalAnswered
    | ToolStarted
    | ToolFinished
    | ToolRefused
    | Noted
    | Budget
    | Below
    | RunEnded
)


class ShownText:
    """What a reader of the stream should show as the model's words: ``show`` each event, read ``text``.

    The text of one attempt at a time: another attempt, or another client, begins anew.
    """

    def __init__(self) -> None:
        self.text = ""
        self._of = ("", 0)

    def show(self, event: AnyStreamEvent) -> None:
        """Take in the next event of the stream."""
        if isinstance(event, TextDelta):
            if (event.call, event.attempt) != self._of:
                self._begin(event.call, event.attempt)
            self.text += event.text
        elif isinstance(event, CallStarted):
            self._begin(event.call, event.attempt)
        elif isinstance(event, TextRetracted) and (event.call, event.attempt) == self._of:
            self.text = ""

    def _begin(self, call: str, attempt: int) -> None:
        self.text, self._of = "", (call, attempt)


class Stream:
    """The events of one run, for one reader. It ends with ``RunEnded``, or when the run broke down."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[AnyStreamEvent | None] = asyncio.Queue()

    def emit(self, event: AnyStreamEvent) -> None:
        self._events.put_nowait(event)

    def of_child(self, run: str, agent: str) -> Callable[[AnyStreamEvent], None]:
        """What emits the events of a run below this one."""
        return lambda event: self.emit(Below(run, agent, event))

    def finish(self) -> None:
        self._events.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[AnyStreamEvent]:
        while (event := await self._events.get()) is not None:
            yield event
        self.finish()  # whoever reads again finds the end again
