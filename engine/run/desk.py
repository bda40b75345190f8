"""What one run asks of people through its journal: written down when nothing else is awaited, taken up once answered.

Whether anybody waits for the answers in this process, and for how long, is the business of whoever drives the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from engine.core.core import Core
from engine.core.events import AnyEvent, ToolEnded
from engine.core.messages import Message
from engine.core.state import NO_TIME, State
from engine.core.suspension import requests
from engine.core.vocabulary import REFUSALS
from engine.run.approvals import accepted, answer_event, edited
from engine.run.effects import Approval, approval_key, extension_key, tool_key
from engine.run.result import OpenRequest
from engine.run.results import brief, to_text
from engine.run.tools import ArgumentError, Tool
from engine.store import Store
from engine.store.protocol import Answer, Asked, RequestRecord

_KEYS: Mapping[str, Callable[[str], str]] = {"tool": approval_key, "external": tool_key, "extension": extension_key}


class Desk:
    """See the module. ``tools`` are those of the run."""

    def __init__(self, store: Store, run: str, core: Core, tools: Mapping[str, Tool]) -> None:
        self._store = store
        self._run = run
        self._core = core
        self._tools = tools
        self._taken: dict[str, str] = {}
        """Requests whose answers have been given out, with the keys of their effects."""

    def ask(self, state: State, effects: Mapping[str, Approval]) -> None:
        """Write down all that the suspended run waits for; ``effects`` are the questions by their keys."""
        asked = []
        for request in requests(self._core, state):
            effect = effects.get(_KEYS[request.kind](request.id))
            call, because = (effect.call, effect.because) if effect else (None, "")
            asked.append(Asked(request, call.arguments if call else "", because))
        self._store.ask(self._run, asked)

    def open(self) -> tuple[OpenRequest, ...]:
        """What the run, and all below it, asks of people now."""
        return open_requests(self._store, self._run)

    def answered(self) -> dict[str, RequestRecord]:
        """The requests that people have answered and the run has not heard of, by the keys of their effects."""
        found = {}
        for record in self._store.requests(run=self._run):
            if record.answer is not None and not record.taken and record.id not in self._taken:
                found[_KEYS[record.asked.request.kind](record.asked.request.id)] = record
        return found

    def keeps(self, key: str) -> bool:
        """Is an answer that was given out in the journal, for whoever goes on with the run?"""
        return key in self._taken.values()

    def take(
        self,
        record: RequestRecord,
        effect: Approval,
        at: int,
        put: Callable[[Message], str],
        prepared: dict[str, dict[str, Any]],
    ) -> tuple[AnyEvent, str]:
        """A person's answer as an event, and in words what is wrong with it (empty: nothing). It is given out once.

        ``prepared`` gets edited arguments as the tool takes them.
        """
        answer = record.answer
        assert answer is not None
        self._taken[record.id] = effect.key
        return taken(answer, effect, self._tools, at, put, prepared)


def taken(
    answer: Answer,
    effect: Approval,
    tools: Mapping[str, Tool],
    at: int,
    put: Callable[[Message], str],
    prepared: dict[str, dict[str, Any]],
) -> tuple[AnyEvent, str]:
    """An answer to a question as an event, and in words what is wrong with it (empty: nothing). See ``Desk.take``."""
    request, when = effect.request, min(answer.at, at)
    if request.kind == "external":
        return _brought(effect, answer.verdict == "granted", answer.value or "", at, put), ""
    if request.kind == "tool" and answer.verdict == "granted" and answer.value is not None:
        try:
            arguments = msgspec.json.decode(answer.value)
            return edited(request, tools.get(request.tool), arguments, at, put, prepared, when), ""
        except (ArgumentError, ValueError) as exc:
            problem = f"the edited arguments of {request.tool} are not valid: {brief(exc)}"
            return answer_event(request, "refused", at, when=when), problem
    return answer_event(request, answer.verdict, at, amount=answer.amount, when=when), ""


def given(record: RequestRecord, tools: Mapping[str, Tool], args: Mapping[str, Any] | None, result: Any) -> str | None:
    """What goes with an answer, as the journal keeps it: arguments that the tool accepts as JSON, or a result as text.

    Raises:
        ValueError: the request wants something else, or the tool does not accept the arguments.
    """
    request = record.asked.request
    if result is not None:
        if request.kind != "external":
            raise ValueError("it does not wait for a result")
        return to_text(result)
    if args is None:
        return None
    if request.kind != "tool":
        raise ValueError("it is not about the arguments of a tool call")
    try:
        return accepted(tools.get(request.tool), args)[1]
    except ArgumentError as exc:
        raise ValueError(f"the arguments are not valid: {brief(exc)}") from None


def _brought(effect: Approval, done: bool, text: str, at: int, put: Callable[[Message], str]) -> ToolEnded:
    """What became of a call that somebody else has executed, or has not."""
    request, call = effect.request, effect.call
    assert call is not None
    said = text if done else REFUSALS["refused"].format(tool=call.name)
    ref = put(Message("tool", said, tool_call_id=call.id, is_error=not done))
    result = sha256(said.encode("utf-8", "replace")).hexdigest()
    return ToolEnded(at, request.id, 0, "ok" if done else "denied", result, ref=ref)


def open_requests(store: Store, root: str) -> tuple[OpenRequest, ...]:
    """What a run and all below it ask of people now, in the order of asking."""
    waiting = store.requests(tree=root, open=True)
    if not waiting:
        return ()
    records = {record.run: record for record in store.runs(tree=root)}

    def agents(run: str) -> tuple[str, ...]:
        record = records.get(run)
        if record is None or not record.agent:
            return ()
        return (*(agents(record.parent) if record.parent else ()), record.agent)

    return tuple(open_request(record, agents(record.run)) for record in waiting)


def open_request(record: RequestRecord, agents: tuple[str, ...]) -> OpenRequest:
    """What the journal has as a request, as people need to see it."""
    request = record.asked.request
    return OpenRequest(
        id=record.id,
        run=record.run,
        agents=agents,
        kind=request.kind,
        tool=request.tool,
        arguments=record.asked.arguments,
        limit=request.id if request.kind == "extension" else "",
        resource=request.resource,
        used=request.used,
        maximum=request.maximum,
        up_to=request.up_to,
        until=None if request.until >= NO_TIME else request.until,
        because=record.asked.because,
    )
