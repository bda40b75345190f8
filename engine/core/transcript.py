"""The conversation of a run: the second pure fold over its events, beside the state.

``Transcript.apply`` takes each event with the decision it got. What it keeps are references into
the content store and the short texts of synthetic results; ``messages`` turns that into what a
client sends, ``problems`` says what a provider would refuse in it. Every content is one
``Message``. Nothing here decides anything or looks inside a content.

What a conversation consists of: the messages the host gave, each reply that was accepted, and right
after it one result for each of its calls, in the model's order. Failed attempts, empty replies,
instructions and notices leave nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

from msgspec import Struct, structs

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Message
from engine.core.vocabulary import REFUSALS

ANSWERED_BY_HOST: Final = "This call was answered by the host; its result was not recorded."
OUTPUT_ACCEPTED: Final = "The answer has been accepted."
"""The result of a call that is itself the answer: providers want one for every call."""

_SILENT: Final = frozenset(
    {(e.ToolRequested, d.Execute), (e.RetryDue, d.Call), (e.Tick, d.Wait), (e.UsageReported, d.Wait)}
)
"""What is frequent and adds nothing, unless there is a reply to accept or to drop: not worth a copy."""

_NO_CONTENT: Final = {
    "ok": "",
    "failed": "The tool failed.",
    "timed_out": REFUSALS["timed_out"],
    "cancelled": REFUSALS["cancelled"],
    "deferred": REFUSALS["cancelled"],
    "unknown": "The result of this call is not known.",
}


class Entry(Struct, frozen=True, gc=False, omit_defaults=True):
    """One message of a conversation, by reference.

    ``given`` comes from the host, ``reply`` from a model. A ``result`` answers the call at ``position`` (from 0) of
    the last reply with the content ``ref``, or with ``text`` where there is none.
    """

    kind: Literal["given", "reply", "result"]
    ref: str = ""
    text: str = ""
    position: int = 0
    is_error: bool = False


_ACCEPTED: Final = Entry("result", text=OUTPUT_ACCEPTED)


class Transcript(Struct, eq=False):
    """An immutable value: ``apply`` returns the next one, in constant time for each message added."""

    _log: list[Entry] = []
    _length: int = 0
    _reply: e.ModelReplied | None = None
    """A reply that no decision has accepted or dropped yet."""
    _open: tuple[e.Proposed, ...] = ()
    """The calls of the last reply, until each has a result; empty otherwise."""
    _positions: dict[str, int] = {}
    """Where each of them stands that takes a result."""
    _waiting: int = 0
    """How many of them wait for one."""
    _results: dict[str, Entry] = {}
    _early: dict[str, Entry] = {}
    """Results of calls whose reply was not shown yet."""
    _attempts: dict[str, int] = {}
    """Which attempt of a call is in flight, where it is not the first: the end of another is no result."""
    _call: str = ""
    _stopping: bool = False
    _ended: bool = False

    @property
    def ended(self) -> bool:
        """Has the run ended? Nothing is added any more."""
        return self._ended

    @property
    def open(self) -> tuple[str, ...]:
        """The calls (as the events name them) that have no result yet, in the model's order."""
        return tuple(call.id for call in self._open if call.kind in e.AWAITED and call.id not in self._results)

    def __len__(self) -> int:
        return self._length

    def entries(self, start: int = 0) -> list[Entry]:
        """Everything said so far, or what was added since there were ``start`` entries.

        The results of a round are added together, when the last of them is known.
        """
        return self._log[start : self._length]

    def apply(self, event: e.AnyEvent, decision: d.AnyDecision) -> Transcript:
        """The conversation after ``event``, which got ``decision``."""
        if self._ended or decision.__class__ is d.Illegal:
            return self
        silent = self._reply is None and (event.__class__, decision.__class__) in _SILENT
        if silent and not (isinstance(decision, d.Execute) and decision.attempt > 1):
            return self
        after = structs.replace(self)
        if hear := _HEAR.get(event.__class__):
            hear(after, event, decision)
        if obey := _OBEY.get(decision.__class__):
            obey(after, decision)
        after._complete()
        return after

    # What an event itself adds.

    def _replied(self, event: e.ModelReplied, decision: d.AnyDecision) -> None:
        # A reply that nothing follows from came too late: its call was cancelled, or is being tried again.
        if not self._stopping and not isinstance(decision, d.Wait):
            self._reply = event

    def _tool_ended(self, event: e.ToolEnded, decision: d.AnyDecision) -> None:
        if event.status == "deferred" and not self._stopping:
            return  # its result comes later
        of_the_last = not event.attempt or event.attempt >= self._attempts.get(event.id, 1)
        if of_the_last and not isinstance(decision, d.Execute):
            self._answer(((event.id, _result_of(event)),))

    def _call_requested(self, event: e.CallRequested, decision: d.AnyDecision) -> None:
        if event.answered:
            self._answer([(id, Entry("result", text=ANSWERED_BY_HOST)) for id in event.answered])
            self._complete()
        if event.call != self._call:
            self._call, self._early, self._attempts = event.call, {}, {}
            self._given(event.refs)

    def _run_started(self, event: e.RunStarted, decision: d.AnyDecision) -> None:
        self._given(event.refs)

    def _given(self, refs: tuple[str, ...]) -> None:
        if refs:
            self._add([Entry("given", ref) for ref in refs])

    # What a decision adds.

    def _run_tools(self, decision: d.RunTools) -> None:
        self._accept_reply()
        self._close(decision.verdicts)

    def _refused(self, decision: d.Reply) -> None:
        self._close((decision,))

    def _ending(self, decision: d.Stop | d.End) -> None:
        self._accept_reply()
        self._close(decision.close)
        self._stopping = True
        self._ended = isinstance(decision, d.End)

    def _retried(self, decision: d.Retry) -> None:
        # After a pause the provider goes on from what it has said; any other reply is asked for again.
        if self._reply is not None and self._reply.finish == "pause":
            self._accept_reply()
        self._reply = None

    def _called(self, decision: d.Call) -> None:
        self._reply = None

    def _executed(self, decision: d.Execute) -> None:
        if decision.attempt > 1:
            self._attempts = self._attempts | {decision.id: decision.attempt}

    def _accept_reply(self, decision: d.AnyDecision | None = None) -> None:
        reply, self._reply = self._reply, None
        if reply is None or not _says_something(reply):
            return
        self._add((Entry("reply", reply.ref),))
        self._open, self._positions, self._results = reply.calls, {}, {}
        self._waiting = 0
        for i, call in enumerate(reply.calls):
            if call.kind != "hosted":
                self._positions[call.id] = i
                self._waiting += call.kind in e.AWAITED
        early, self._early = self._early, {}
        if early:
            self._answer(early.items())

    def _close(self, verdicts: Sequence[d.Execute | d.Ask | d.Reply]) -> None:
        closed = []
        for verdict in verdicts:
            if isinstance(verdict, d.Reply):
                text = "" if verdict.ref else verdict.text
                closed.append((verdict.id, Entry("result", verdict.ref, text, is_error=verdict.why != "handoff")))
        if closed:
            self._answer(closed)

    def _answer(self, results: Iterable[tuple[str, Entry]]) -> None:
        """The first result of a call counts; there is one for each, whatever is reported late or twice."""
        known = self._results.copy()
        for id, result in results:
            position = self._positions.get(id)
            if position is None:
                self._early = {id: result} | self._early
            elif id not in known:
                known[id] = result
                self._waiting -= self._open[position].kind in e.AWAITED
        self._results = known

    def _complete(self) -> None:
        """When no call is without a result, add the results in the model's order."""
        if not self._open or self._waiting:
            return
        added = []
        for id, position in self._positions.items():
            result = self._results.get(id, _ACCEPTED)
            added.append(result if result.position == position else structs.replace(result, position=position))
        self._add(added)
        self._open, self._positions, self._results = (), {}, {}

    def _add(self, entries: Sequence[Entry]) -> None:
        """Versions of one conversation share a list, each its own length of it; a fork gets a copy."""
        if not entries:
            return
        if self._length != len(self._log):
            self._log = self._log[: self._length]
        self._log.extend(entries)
        self._length = len(self._log)


_HEAR: dict[type, Callable[[Transcript, Any, d.AnyDecision], None]] = {
    e.RunStarted: Transcript._run_started,
    e.CallRequested: Transcript._call_requested,
    e.ModelReplied: Transcript._replied,
    e.ToolEnded: Transcript._tool_ended,
}

_OBEY: dict[type, Callable[[Transcript, Any], None]] = {
    d.Continue: Transcript._accept_reply,
    d.Call: Transcript._called,
    d.Execute: Transcript._executed,
    d.Retry: Transcript._retried,
    d.Reply: Transcript._refused,
    d.RunTools: Transcript._run_tools,
    d.Stop: Transcript._ending,
    d.End: Transcript._ending,
}


def _says_something(reply: e.ModelReplied) -> bool:
    """Some providers refuse an empty message; a reply that was cut before any text is a failed attempt."""
    if reply.text or reply.finish == "pause":
        return True
    if reply.finish in ("length", "content_filter"):
        return any(call.kind != "hosted" for call in reply.calls)
    return bool(reply.calls)


def _result_of(event: e.ToolEnded) -> Entry:
    text = "" if event.ref else _NO_CONTENT[event.status]
    return Entry("result", event.ref, text, is_error=event.status != "ok")


def fold(steps: Iterable[tuple[e.AnyEvent, d.AnyDecision]]) -> Transcript:
    """The conversation of a run, from its events and their decisions in order."""
    transcript = Transcript()
    for event, decision in steps:
        transcript = transcript.apply(event, decision)
    return transcript


def messages(entries: Iterable[Entry], get: Callable[[str], Message], before: Sequence[Message] = ()) -> list[Message]:
    """The messages of some entries. ``before`` are the messages of the entries before them.

    Each result gets the provider's own id of its call, which the reply carries.

    Raises:
        ValueError: a reply's content has fewer calls than its event had.
        Whatever ``get`` raises for an unknown reference.
    """
    made: list[Message] = []
    reply = next((m for m in reversed(before) if m.role == "assistant"), None)
    for entry in entries:
        if entry.kind == "result":
            made.append(_result_message(entry, reply, get))
            continue
        message = get(entry.ref)
        if entry.kind == "reply":
            reply = message
        made.append(message)
    return made


def _result_message(entry: Entry, reply: Message | None, get: Callable[[str], Message]) -> Message:
    if reply is None or entry.position >= len(reply.tool_calls):
        raise ValueError(f"the conversation has a result for call {entry.position} of a reply that has no such call")
    id = reply.tool_calls[entry.position].id
    if not entry.ref:
        return Message("tool", entry.text, tool_call_id=id, is_error=entry.is_error)
    content = get(entry.ref)
    if content.tool_call_id == id and content.role == "tool" and content.is_error >= entry.is_error:
        return content  # a driver that knew the id has stored it so
    return structs.replace(
        content, role="tool", tool_calls=(), tool_call_id=id, is_error=content.is_error or entry.is_error
    )


def problems(conversation: Iterable[Message]) -> list[str]:
    """What OpenAI's or Anthropic's API would refuse in a conversation, in words; empty if both accept it.

    Checked: each function call has exactly one result, and results stand right after their message; ids are there
    and differ within a message; no message is empty.
    """
    found: list[str] = []
    answered: dict[str, bool] = {}
    for number, message in enumerate(conversation, 1):
        where = f"message {number}"
        if message.role == "tool":
            id = message.tool_call_id or ""
            if id not in answered:
                found.append(f"{where}: a result for {id!r}, which no call right before it has")
            elif answered[id]:
                found.append(f"{where}: a second result for the call {id!r}")
            answered[id] = True
            continue
        found += _unanswered(where, answered)
        found += [f"{where}: {fault}" for fault in _faults(message)]
        calls = message.tool_calls if message.role == "assistant" else ()
        answered = {call.id: False for call in calls if call.kind == "function"}
    return found + _unanswered("the end", answered)


def _unanswered(where: str, answered: dict[str, bool]) -> list[str]:
    return [f"{where}: no result yet for the call {id!r}" for id, done in answered.items() if not done]


def _faults(message: Message) -> list[str]:
    """What is wrong with one message that is no result."""
    faults: list[str] = []
    if not (message.text or message.tool_calls or message.opaque):
        faults.append(f"the {message.role} message is empty")
    if message.tool_calls and message.role != "assistant":
        faults.append(f"the {message.role} message has calls")
    for id, count in Counter(call.id for call in message.tool_calls).items():
        if not id:
            faults.append("a call has no id")
        elif count > 1:
            faults.append(f"{count} calls have the id {id!r}")
    faults += [f"the call {call.id!r} names no tool" for call in message.tool_calls if not call.name]
    return faults
