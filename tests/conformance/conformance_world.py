"""Plays a case against the real driver: its configuration becomes a policy, its script a model, tools and hooks.

What the other system calls by other names is translated in one place, ``expected``; everything else of a case's
expectation is compared as it stands. The model is scripted in this process, or a rehearsal server over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from conformance_cases import Case
from msgspec import structs

from engine.clients import Anthropic, ModelError, OpenAIChat
from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Message, Reply, Request, ToolCall, Usage
from engine.core.policy import Finalize, Limit, Policy
from engine.core.texts import fill
from engine.core.vocabulary import DEFAULT_INSTRUCTION
from engine.rehearsal import Ledger, Rehearsal, Script
from engine.run.driver import Driver
from engine.run.hooks import CallContext
from engine.run.result import RunResult
from engine.run.results import Answer, StopRun
from engine.run.tools import Tool
from engine.store import MemoryStore

ANSWER = "the answer"
USAGE = Usage(input=10, output=5)


def ladder(text: str | None) -> tuple[Finalize, ...]:
    """The three states of a finalization: none, with the default instruction (``""``), with one's own."""
    if text is None:
        return ()
    return (Finalize(text=text or None),)


def limit(resource: str, maximum: int, text: str | None = None, **more: Any) -> Limit:
    return Limit.model_validate({"resource": resource, "max": maximum, "then": ladder(text), **more})


def policy_of(config: dict[str, Any], **more: Any) -> Policy:
    """The policy that says what a case's configuration says."""
    limits = [
        limit(resource, config[maximum], config.get(text))
        for resource, maximum, text in (
            ("llm_calls", "max_llm_calls", "finalize_on_llm_limit"),
            ("tool_iterations", "max_tool_iterations", "finalize_on_tool_limit"),
        )
        if maximum in config
    ]
    return Policy.model_validate({"name": "case", "limits": limits, **more})


def default_instruction(resource: str) -> str:
    return fill(DEFAULT_INSTRUCTION, {"resource": resource})


def says(text: str = ANSWER, **more: Any) -> Reply:
    return Reply(Message("assistant", text, **more), usage=USAGE)


def asks(*names: str, text: str = "") -> Reply:
    calls = tuple(ToolCall(f"id-{name or 'blank'}", name) for name in names)
    return Reply(Message("assistant", text, tool_calls=calls), finish="tool_calls", usage=USAGE)


class RecordingStore(MemoryStore):
    """A journal whose events and decisions can be looked at."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.log: list[tuple[e.AnyEvent, d.AnyDecision]] = []

    def append(self, run: str, seq: int, event: e.AnyEvent, decision: d.AnyDecision) -> None:
        super().append(run, seq, event, decision)
        self.log.append((event, decision))


class FakeModel:
    """A client in this process. ``answer`` gets the number of the request (from 0) and the request."""

    name = "primary"
    model = "scripted"
    wire = "scripted"

    def __init__(self, answer: Callable[[int, Request], Any]) -> None:
        self.answer = answer
        self.requests: list[Request] = []

    async def complete(
        self,
        request: Request,
        *,
        on_delta: Callable[[str], Any] | None = None,
        timeout: float | None = None,
        idempotency_key: str | None = None,
    ) -> Reply:
        self.requests.append(request)
        answer = self.answer(len(self.requests) - 1, request)
        if callable(answer):
            answer = await answer(on_delta)
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, Reply)
        return answer

    async def aclose(self) -> None: ...


def model(*answers: Any) -> FakeModel:
    """A model that gives these answers one after another; the last one again and again."""
    return FakeModel(lambda n, request: answers[min(n, len(answers) - 1)])


@dataclass
class Sent:
    """What one request looked like to a model."""

    tools_offered: bool
    last: str


@dataclass
class Seen:
    """What can be seen of a played case, in the shape of a case's expectation."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    tools_executed: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    outcome: tuple[str, str] = ("", "")
    counters: dict[str, int] = field(default_factory=dict)
    turns_left: int = 0


class World:
    """One case being played. ``case``: the data; ``play`` runs it once."""

    def __init__(self, case: Case, wire: str = "in process", stream: bool = False) -> None:
        self.case = case
        self.wire = wire
        self.stream = stream
        self.turns: list[dict[str, Any]] = case["script"]
        self.policy = policy_of(case["config"])
        self.store = RecordingStore()
        self.executed: list[str] = []
        self.shown: dict[int, Sent] = {}
        """By call: what the hooks saw."""
        self.turn = 0
        self.sent: list[Sent] = []
        self.result: RunResult | None = None

    def tools(self) -> list[Tool]:
        outcomes = {
            tool["id"]: tool["outcome"]
            for turn in self.turns
            for response in turn.get("responses", [])
            for tool in response.get("tools", [])
        }
        outcomes["other"] = "ok"  # so that there is always one to offer
        return [Tool(self._tool(id, how), name=id) for id, how in outcomes.items() if how != "unknown"]

    def _tool(self, id: str, outcome: str) -> Callable[[], Any]:
        async def run() -> Any:
            self.executed.append(id)
            if outcome == "error":
                raise RuntimeError("it did not work")
            if outcome == "stop_error":
                raise StopRun("stop here")
            if outcome == "skip_summarization":
                raise Answer("the tool's own answer")
            assert outcome == "ok", outcome
            return "done"

        return run

    def processor(self, request: Request, context: CallContext) -> Request | None:
        self.turn = int(context.call) - 1
        turn = self.turns[self.turn]
        if turn.get("no_messages"):
            return structs.replace(request, messages=())
        return None

    def before(self, request: Request, context: CallContext) -> Reply | None:
        self.shown[int(context.call)] = Sent(bool(request.tools) and request.tool_choice != "none", _last(request))
        how = self.turns[self.turn].get("before")
        if how == "custom":
            return reply_of(self.turns[self.turn]["responses"][0])
        if how == "error":
            raise RuntimeError("before model")
        return None

    def answer(self, n: int, request: Request) -> Reply | Exception:
        self.sent.append(Sent(bool(request.tools) and request.tool_choice != "none", _last(request)))
        turn = self.turns[self.turn]
        if turn.get("provider_error"):
            return ModelError("provider", "the provider is down")
        return reply_of(turn["responses"][0])

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        if self.wire == "in process":
            yield FakeModel(self.answer)
            return
        replies = [scripted(turn) for turn in self.turns if "before" not in turn and "no_messages" not in turn]
        async with Rehearsal(Script.of(*replies)) as server:
            kind = OpenAIChat if self.wire == "openai" else Anthropic
            client = kind("rehearsal", base_url=server.url, name="primary")
            try:
                yield client
            finally:
                await client.aclose()
                self.sent = sent_to(server.ledger)

    async def play(self) -> Seen:
        async with self.client() as client:
            driver = Driver(
                self.policy,
                client,
                self.tools(),
                journal=self.store,
                request_processors=[self.processor],
                before_model=[self.before],
            )
            self.result = await asyncio.wait_for(driver.start("the question", stream=self.stream), 20)
        return self.seen()

    def seen(self) -> Seen:
        assert self.result is not None
        used = self.result.used
        calls = self._calls()
        return Seen(
            calls=calls,
            tools_executed=self.executed,
            events=events_of(self.store.log),
            outcome=(self.result.status, self.result.reason),
            counters={"llm_calls": used.llm_calls, "tool_iterations": used.tool_iterations},
            turns_left=len(self.turns) - sum(call["allowed"] for call in calls),
        )

    def _calls(self) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []
        wire = iter(self.sent)
        for event, decision in self.store.log:
            if not isinstance(event, e.CallRequested):
                continue
            n = len(calls) + 1
            if not isinstance(decision, d.Call):
                calls.append({"n": n, "allowed": False})
                continue
            reached = self._reached_provider(n - 1)
            sent = next(wire) if reached else self.shown[n]
            calls.append(
                {
                    "n": n,
                    "allowed": True,
                    "tools_offered": sent.tools_offered,
                    "instruction": sent.last if decision.final else None,
                    "provider_called": reached,
                }
            )
        assert next(wire, None) is None, "more requests on the wire than calls"
        return calls

    def _reached_provider(self, turn: int) -> bool:
        return "before" not in self.turns[turn] and "no_messages" not in self.turns[turn]


def reply_of(response: dict[str, Any]) -> Reply:
    if response["kind"] == "tool_calls":
        return asks(*(tool["id"] for tool in response["tools"]))
    assert response["kind"] == "final", response
    return says()


def scripted(turn: dict[str, Any]) -> dict[str, Any]:
    """A turn of a case as a reply of a rehearsal script."""
    if turn.get("provider_error"):
        return {"fail": "provider"}
    (response,) = turn["responses"]
    if response["kind"] == "tool_calls":
        return {"calls": [{"tool": tool["id"]} for tool in response["tools"]]}
    assert response["kind"] == "final", response
    return {"text": ANSWER}


def sent_to(ledger: Ledger) -> list[Sent]:
    """The requests a rehearsal server received. All of them must have been valid ones."""
    assert ledger.problems == []
    return [Sent(bool(entry.offered), last_text(entry.body)) for entry in ledger]


def last_text(body: dict[str, Any]) -> str:
    """The last text of a request's last message, in either wire format."""
    content = body["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    return next((block["text"] for block in reversed(content) if block["type"] == "text"), "")


def _last(request: Request) -> str:
    return request.messages[-1].text if request.messages else ""


def events_of(log: list[tuple[e.AnyEvent, d.AnyDecision]]) -> list[str]:
    """What happened, in the words of the cases."""
    said: list[str] = []
    for event, decision in log:
        if isinstance(event, e.ModelReplied):
            if event.calls:
                said.append("response:tool_calls")
            elif event.text:
                said.append("response:final")
        ended_round = isinstance(event, e.ToolEnded) and not isinstance(decision, d.Wait)
        if ended_round or (isinstance(decision, d.RunTools) and decision.complete):
            said.append("tool_results")
        if isinstance(decision, d.End) and decision.outcome.status in ("failed", "incomplete"):
            said.append("error")
    return said


# What the other system calls by other names.


def expected(case: Case) -> Seen:
    """A case's expectation in our words.

    The two kinds of error events are one kind of end, whose outcome says the reason. What has no limit is counted all
    the same, and what was refused is not counted: see ``docs/differences.md``.
    """
    expect = case["expect"]
    calls = [_expected_call(case, call) for call in expect["calls"]]
    allowed = sum(call["allowed"] for call in calls)
    return Seen(
        calls=calls,
        tools_executed=expect["tools_executed"],
        events=["error" if event.startswith("error:") else event for event in expect["events"]],
        outcome=_expected_outcome(case, calls),
        counters={
            "llm_calls": _counted(case, "llm_calls", allowed),
            "tool_iterations": _counted(case, "tool_iterations", expect["events"].count("tool_results")),
        },
        turns_left=expect.get("model_turns_never_reached", len(case["script"]) - allowed),
    )


def _expected_call(case: Case, call: dict[str, Any]) -> dict[str, Any]:
    if call.get("allowed") is False:
        return {"n": call["n"], "allowed": False}
    filled = {"allowed": True, "tools_offered": True, "instruction": None, "provider_called": True, **call}
    if filled["instruction"] == "<default>":
        filled["instruction"] = default_instruction(_final_reason(case, call["n"]))
    return filled


def _final_reason(case: Case, n: int) -> str:
    """Which limit makes call ``n`` the final one."""
    config = case["config"]
    by_calls = "finalize_on_llm_limit" in config and config.get("max_llm_calls") == n
    return "llm_calls" if by_calls else "tool_iterations"


def _expected_outcome(case: Case, calls: list[dict[str, Any]]) -> tuple[str, str]:
    outcome = case["expect"]["outcome"]
    last = calls[-1]
    final = last["allowed"] and not last["tools_offered"]
    if outcome["kind"] == "final":
        return ("finalized", _final_reason(case, last["n"])) if final else ("completed", "answer")
    if outcome["kind"] == "ended_without_final":
        return ("completed", "tool_answer")
    assert outcome["kind"] == "error", outcome
    if "max LLM calls" in outcome.get("message", ""):
        return ("incomplete", "llm_calls")
    turn = case["script"][last["n"] - 1]
    if "responses" not in turn:
        return ("failed", "llm_failure")
    return ("failed", "finalization_disobeyed") if final else ("incomplete", "tool_iterations")


def _counted(case: Case, resource: str, happened: int) -> int:
    """The case's counter; where the other system keeps none, or counts a refusal too, what really happened."""
    maximum = case["config"].get({"llm_calls": "max_llm_calls", "tool_iterations": "max_tool_iterations"}[resource])
    counter = case["expect"]["counters"][resource]
    return happened if maximum is None else min(counter, maximum)


def counters_translated(case: Case) -> bool:
    """Is a counter of this case one that the other system keeps in another way?"""
    return bool(expected(case).counters != case["expect"]["counters"])
