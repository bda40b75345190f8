"""What one run on an engine asks of people: open questions by the ids that answers name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.core.events import AnyEvent
from engine.core.messages import Message
from engine.run.desk import open_request, taken
from engine.run.effects import Approval
from engine.run.result import OpenRequest
from engine.run.tools import Tool
from engine.runtimes.records import Answered
from engine.store.protocol import Answer, Asked, RequestRecord
from engine.store.requests import new_id


class People:
    """See the module. ``tools`` are those of the run."""

    def __init__(self, run: str, tools: Mapping[str, Tool]) -> None:
        self._run = run
        self._tools = tools
        self._open: dict[str, tuple[RequestRecord, Approval]] = {}
        self._used: set[str] = set()

    def ask(self, effect: Approval, at: int) -> None:
        """Ask this, from now on (ms)."""
        call = effect.call
        asked = Asked(effect.request, call.arguments if call else "", effect.because)
        id = new_id(self._run, asked, self._used)
        self._used.add(id)
        self._open[id] = RequestRecord(id, self._run, asked, at), effect

    def forget(self, key: str) -> None:
        """Nobody needs to answer the question of this key any more."""
        for id, (_, effect) in list(self._open.items()):
            if effect.key == key:
                del self._open[id]

    def answered(self, answer: Answered, at: int, put: Callable[[Message], str]) -> tuple[AnyEvent, str] | None:
        """An answer as an event, and in words what is wrong with it; ``None`` where none is wanted (any more)."""
        record, effect = self._open.get(answer.request, (None, None))
        if record is None or effect is None or answer.at >= record.asked.request.until:
            return None
        del self._open[answer.request]
        given = Answer(answer.verdict, answer.amount, answer.value, answer.by, answer.at)
        return taken(given, effect, self._tools, at, put, {})

    def open(self) -> tuple[OpenRequest, ...]:
        """What is asked now, in the order of asking."""
        return tuple(open_request(record, ()) for record, _ in self._open.values())
