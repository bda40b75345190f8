"""Plays a case of error control against the driver, and says what was seen in the case's words."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from typing import Any

from conformance_cases import Case
from conformance_errors import policy_of_errors, script
from conformance_world import USAGE, FakeModel, RecordingStore

from engine.clients import ModelError
from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Message, Reply, ToolCall
from engine.core.policy import Policy
from engine.core.transcript import problems
from engine.run.driver import Driver
from engine.run.result import RunResult
from engine.run.tools import Tool


class ErrorRun:
    """One case played: its models (``primary`` and the one it falls back on), its tools, and what was seen."""

    def __init__(self, case: Case, policy: Policy | None = None) -> None:
        self.case = case
        self.config = case["config"]
        self.policy = policy or policy_of_errors(self.config)
        self.store = RecordingStore()
        self.answers: dict[str, list[Reply | ModelError]] = defaultdict(list)
        self.outcomes: dict[str, list[bool]] = defaultdict(list)
        self.executed: list[str] = []
        self.result: RunResult | None = None
        for event in script(case):
            self._read(event)
        cheap = self.config.get("fallback")
        self.models = {"primary": self._model("primary", "primary")}
        if cheap:
            self.models[cheap] = self._model(cheap, "fallback")

    def _read(self, event: dict[str, Any]) -> None:
        if event["ev"] in ("says", "asks", "fails"):
            self.answers[event["client"]].append(answer_of(event))
        elif event["ev"] in ("tool_ok", "tool_fail"):
            self.outcomes[event["tool"]].append(event["ev"] == "tool_ok")

    def _model(self, name: str, script_name: str) -> FakeModel:
        answers = self.answers[script_name]
        made = FakeModel(lambda n, request: answers[n])
        made.name = name
        return made

    def tools(self) -> list[Tool]:
        asked = {name for event in script(self.case) for name, _ in event.get("calls", ())}
        names = {*self.config.get("tools", ()), *asked, *self.outcomes} - {"ghost"}
        return [Tool(self._tool(name), name=name) for name in sorted(names)]

    def _tool(self, name: str) -> Any:
        async def run(**arguments: Any) -> str:
            self.executed.append(name)
            if self.outcomes[name] and not self.outcomes[name].pop(0):
                raise RuntimeError("it did not work")
            return "done"

        return run

    async def play(self, **options: Any) -> RunResult:
        driver = Driver(
            self.policy, self.models, self.tools(), journal=self.store, allow_missing_clients=True, **options
        )
        self.result = await asyncio.wait_for(driver.run("question"), 20)
        assert problems(self.result.messages) == []
        return self.result

    def seen(self) -> dict[str, Any]:
        """What a case's expectation may speak of, in its words."""
        result = self.result
        assert result is not None
        requests = {name: len(model.requests) for name, model in self.models.items()}
        failed = Counter(message.name for message in self._results("failed"))
        skipped = len(self._refused("breaker"))
        return {
            "run": "ok" if result.ok else "error",
            "content": result.text,
            "finish_reason": {"finalized": "max_iterations", "completed": "complete"}.get(result.status, result.status),
            "llm_calls": sum(requests.values()),
            "primary_calls": requests["primary"],
            "tool_calls": len(self.executed),
            "tool_executions": len(self.executed),
            "telemetry": {
                "tools_total": len(self.executed) + skipped,
                "tools_failed": failed.total(),
                "failed_by_name": dict(failed),
            },
        }

    def _results(self, status: str) -> list[ToolCall]:
        """Calls whose execution ended so."""
        ids = [event.id for event, _ in self.store.log if isinstance(event, e.ToolEnded) and event.status == status]
        assert self.result is not None
        asked = [m for m in self.result.messages if m.tool_calls]
        return [asked[int(id.split(".")[0]) - 1].tool_calls[int(id.split(".")[1])] for id in ids]

    def _refused(self, why: str) -> list[d.Reply]:
        rounds = [decision for _, decision in self.store.log if isinstance(decision, d.RunTools)]
        return [v for made in rounds for v in made.verdicts if isinstance(v, d.Reply) and v.why == why]


def answer_of(event: dict[str, Any]) -> Reply | ModelError:
    if event["ev"] == "fails":
        return ModelError("provider", event["error"], status=event.get("status"))
    calls = tuple(ToolCall(f"c{i}", name, json.dumps(args)) for i, (name, args) in enumerate(event.get("calls", ())))
    message = Message("assistant", event.get("text", ""), tool_calls=calls)
    return Reply(message, finish="tool_calls" if calls else "stop", usage=USAGE)


COMPARED = (
    "run",
    "content",
    "finish_reason",
    "llm_calls",
    "primary_calls",
    "tool_calls",
    "tool_executions",
    "telemetry",
)


def assert_as_expected(run: ErrorRun) -> None:
    seen, expect = run.seen(), run.case["expect"]
    for name in set(COMPARED) & expect.keys():
        wanted, got = expect[name], seen[name]
        assert ({k: got[k] for k in wanted} if name == "telemetry" else got) == wanted, name
    if "error_contains" in expect:
        assert run.result is not None
        assert expect["error_contains"] in run.result.error
