"""What a transcript tells a run: the results of its tools, and, where nobody knows it, all that has happened before.

Refusals come back from here as well: each tool call of a reply is started, or has a text that stands for its result.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Iterable
from typing import Any

from engine.adapters.acts import Advice, Answer, Consult, Ran, Replied, Result, Run, Send, Wanted
from engine.adapters.session import Session
from engine.core.decisions import Ask
from engine.core.messages import Message, Reply, ToolCall
from engine.gateway.transcripts import Asked
from engine.gateway.wires import Shown

Pending = Generator[Any, Any, Result]
_MOST_ATTEMPTS = 1_000


class Tools:
    """The tool calls of one run that its client executes. ``failed`` recognises the text of a result that says that the
    tool failed, for formats that have no word for it."""

    def __init__(self, session: Session, failed: re.Pattern[str] | None) -> None:
        self._session, self._failed = session, failed
        self._pending: dict[str, Pending] = {}
        self.names: dict[str, str] = {}
        """Of calls that are known to be open in a journal, by id."""

    def start(self, calls: Iterable[ToolCall], answer: Answer) -> list[tuple[ToolCall, str]]:
        """Start what may run; the others, each with the text that stands for its result."""
        refused: list[tuple[ToolCall, str]] = []
        self._pending.clear()
        for call in calls:
            if call.kind != "function":
                continue
            if isinstance(answer.verdicts.get(call.id), Ask):
                self._session.answer(call.id, None)
            text = self._begin(call)
            if text is not None:
                refused.append((call, text))
        return refused

    def _begin(self, call: ToolCall) -> str | None:
        pending: Pending = self._session.tool(call.id, call.name, call.arguments)
        try:
            act = next(pending)
            while not isinstance(act, Run):
                act = pending.send(None)
        except StopIteration as over:
            result: Result = over.value
            return result.refused
        self._pending[call.id] = pending
        return None

    def settle(self, results: Iterable[Shown]) -> None:
        """Tell the run what the transcript shows; what it does not know, or knows already, is passed over."""
        for shown in results:
            if shown.id not in self._pending and shown.id in self.names:
                self._begin(ToolCall(shown.id, self.names.pop(shown.id)))
            pending = self._pending.pop(shown.id, None)
            if pending is not None:
                self._end(pending, shown)

    def _end(self, pending: Pending, shown: Shown) -> None:
        ran = Ran(self._status(shown), shown.text)
        with contextlib.suppress(StopIteration):
            act = pending.send(ran)
            for _ in range(_MOST_ATTEMPTS):  # a further execution, which is not ours to make
                act = pending.send(ran if isinstance(act, Run) else None)
        pending.close()

    def _status(self, shown: Shown) -> Any:
        if shown.failed or (self._failed is not None and self._failed.search(shown.text)):
            return "failed"
        return "unknown" if shown.failed is None and self._failed is None else "ok"


def fold(session: Session, tools: Tools, asked: Asked, wanted: Wanted) -> None:
    """Tell a new run what its transcript shows of calls, rounds and results since the last question.

    It stops where the run does, or its final call is due: that is made now.
    """
    for message in asked.behind:
        said = asked.wire.neutral(message)
        if said.role != "assistant":
            tools.settle(asked.wire.results([message]))
        elif said.tool_calls and not _called(session, tools, said, wanted):
            return


def _called(session: Session, tools: Tools, said: Message, wanted: Wanted) -> bool:
    """One call that was made elsewhere. Does the run go on?"""
    acts = session.call(wanted, session.open)
    try:
        act = next(acts)
        while True:
            if isinstance(act, Send) and act.call.final:
                acts.close()
                return False
            came = Replied(Reply(said, "tool_calls")) if isinstance(act, Send) else None
            act = acts.send(Advice("failed") if isinstance(act, Consult) else came)
    except StopIteration as over:
        answer: Answer = over.value
    if answer.outcome is not None:
        return False
    tools.start(said.tool_calls, answer)
    return True
