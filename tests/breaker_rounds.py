"""Rounds of tool calls through ``step``, one event at a time, with the verdicts in one word."""

from __future__ import annotations

from collections.abc import Sequence

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import Policy
from engine.core.state import State
from engine.core.step import compile


def word(verdict: d.AnyDecision) -> str:
    """``execute``, ``ask``, or why the call was answered instead."""
    if isinstance(verdict, d.Reply):
        return verdict.why
    assert isinstance(verdict, d.Execute | d.Ask), verdict
    return "ask" if isinstance(verdict, d.Ask) else "execute"


class Rounds:
    """A run whose calls all ask for tools. ``at`` is its clock (ms)."""

    def __init__(self, policy: Policy, at: int = 0) -> None:
        self.compiled = compile(policy)
        self.state: State = self.compiled.initial
        self.at = at
        self.notes: list[d.Note] = []
        self._calls = 0
        self.send(e.RunStarted(at, "run"))

    def send(self, event: e.AnyEvent) -> d.AnyDecision:
        self.state, decision = self.compiled.step(self.state, event)
        assert not isinstance(decision, d.Illegal), decision.problem
        self.notes += decision.notes
        return decision

    def call(self) -> d.Call:
        self._calls += 1
        decision = self.send(e.CallRequested(self.at, str(self._calls), client="main"))
        assert isinstance(decision, d.Call), decision
        return decision

    def propose(self, calls: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The model asks for these tools (name and key of arguments): for each its id and the verdict."""
        proposed = tuple(e.Proposed(f"{self._calls}.{i}", name, args) for i, (name, args) in enumerate(calls))
        decision = self.send(e.ModelReplied(self.at, str(self._calls), calls=proposed, usage=Usage(1, 1)))
        assert isinstance(decision, d.RunTools), decision
        return [(call.id, word(verdict)) for call, verdict in zip(proposed, decision.verdicts, strict=True)]

    def start(self, id: str) -> str:
        return word(self.send(e.ToolRequested(self.at, id)))

    def end(self, id: str, status: str = "ok", result: str = "") -> d.AnyDecision:
        return self.send(e.ToolEnded(self.at, id, status=status, result=result))  # type: ignore[arg-type]

    def answer(self, id: str, answer: str = "granted", args: str | None = None) -> str:
        decision = self.send(e.ApprovalGiven(self.at, id, answer, args))  # type: ignore[arg-type]
        assert isinstance(decision, d.RunTools), decision
        return word(decision.verdicts[0])

    def round(self, *calls: tuple[str, str, str]) -> list[str]:
        """A whole round, its calls one after another: tool, key of arguments, and how it ends if it starts."""
        self.call()
        verdicts = self.propose([(tool, args) for tool, args, _ in calls])
        for (id, verdict), (_, _, status) in zip(verdicts, calls, strict=True):
            if verdict == "execute":
                assert self.start(id) == "execute"
                self.end(id, status)
        return [verdict for _, verdict in verdicts]
