"""Faults that users of agent frameworks have reported, and what must happen instead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from conformance_cases import Case, reproduces
from conformance_steps import Steps
from conformance_world import ANSWER, FakeModel, RecordingStore, asks, limit, model, says

from engine.clients import Anthropic, ModelError, OpenAIChat
from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Request
from engine.core.policy import FailureRule, Fallback, Finalization, Policy, Retry, ToolRule
from engine.core.state import NO_TIME
from engine.core.transcript import Transcript, problems
from engine.rehearsal import Rehearsal, Script
from engine.run.driver import Driver
from engine.run.streaming import RunEnded, ToolFinished, ToolStarted
from engine.run.tools import Tool


def tools(names: list[str], executed: list[str]) -> list[Tool]:
    def make(name: str) -> Callable[[], Any]:
        async def run() -> str:
            executed.append(name)
            return "done"

        return run

    return [Tool(make(name), name=name) for name in names]


@reproduces("B01")
async def test_a_refused_atomic_round_runs_nothing_and_closes_everything(case: Case) -> None:
    executed: list[str] = []
    names, config, expect = case["script"]["asks"], case["config"], case["expect"]
    limits = (
        limit("tool_calls", config["tool_calls"], scope="run", atomic=config["atomic"]),
        limit("tool_calls", 100, scope="thread"),
    )
    client = model(asks(*names), says())
    driver = Driver(Policy(name="case", limits=limits), client, tools(names, executed))
    result = await driver.run("question", thread="t")
    assert executed == expect["executed"]
    assert (result.status, result.reason) == ("incomplete", expect["reason"])
    answered = [m.tool_call_id for m in result.messages if m.role == "tool"]
    assert [answered.count(f"id-{name}") for name in names] == [expect["results_per_call"]] * len(names)
    assert problems(result.messages) == []
    assert result.used.tool_calls == expect["charged_to_thread"]
    # The history goes on in the same thread.
    again = await driver.run([*result.messages, {"role": "user", "text": "and now?"}], thread="t")
    assert again.ok


class Watched(Steps):
    """Steps that look at the transcript whenever a call is admitted, and at the end."""

    def __init__(self, policy: Policy) -> None:
        self.transcript = Transcript()
        self.open_at_calls: list[int] = []
        super().__init__(policy)

    def send(self, event: e.AnyEvent) -> d.AnyDecision:
        decision = super().send(event)
        self.transcript = self.transcript.apply(event, decision)
        if isinstance(decision, d.Call | d.End):
            self.open_at_calls.append(len(self.transcript.open))
        return decision


@reproduces("B02")
def test_no_call_is_open_when_a_loop_is_left_for_its_final_call(case: Case) -> None:
    most, expect = case["config"]["llm_calls"], case["expect"]
    calls = limit("llm_calls", most, "")

    # The time for tools is over between the reply and the start of its tool.
    steps = Watched(Policy(name="case", limits=(calls, limit("wall", 1_000, "", reserve=500))))
    steps.call()
    steps.now = 400
    steps.replied(*case["script"]["asks"], ref="reply")
    steps.now = 600
    assert isinstance(steps.send(e.ToolRequested(600, "1.0")), d.Reply)
    _final_and_answer(steps, "wall")

    # The round does not fit, and its calls are answered in its place.
    reactive = Finalization(mode="reactive")
    steps = Watched(
        Policy(name="case", limits=(calls, limit("tool_iterations", 0, "")), finalization=reactive),
    )
    steps.call()
    steps.replied(*case["script"]["asks"], ref="reply")
    _final_and_answer(steps, "tool_iterations")
    assert {*steps.open_at_calls[:-1]} == {expect["open_at_any_call"]}
    assert steps.open_at_calls[-1] == expect["open_at_the_end"]


def _final_and_answer(steps: Watched, why: str) -> None:
    final = steps.call()
    assert isinstance(final, d.Call)
    assert (final.final, final.why) == (True, why)
    assert isinstance(steps.replied(text=True, ref="answer"), d.End)
    assert set(steps.open_at_calls) == {0}


@reproduces("B05")
@pytest.mark.parametrize("kind", [OpenAIChat, Anthropic])
async def test_the_final_call_is_one_of_the_budget(case: Case, kind: type[OpenAIChat | Anthropic]) -> None:
    script = Script.of(
        {"text": ANSWER, "when": {"tools": False}, "times": "always"}, {"tool": "look", "times": "always"}
    )
    async with Rehearsal(script) as server:
        client = kind("any", base_url=server.url)
        policy = Policy(name="case", limits=(limit("llm_calls", case["config"]["llm_calls"], ""),))
        result = await Driver(policy, client, tools(["look"], [])).run("question")
        await client.aclose()
        seen = {
            "calls": server.ledger.total,
            "with_tools": [entry.number for entry in server.ledger if entry.offered],
            "answer": result.ok and result.text == ANSWER,
        }
        assert server.ledger.problems == []
    assert seen == case["expect"]


@reproduces("B08")
@pytest.mark.parametrize("way", ["proactive", "reactive", "stop"])
async def test_a_loop_ends_soon_after_its_tools_are_spent(case: Case, way: str) -> None:
    executed: list[str] = []
    client = FakeModel(lambda n, request: asks("same") if request.tools else says())
    rule = limit("tool_calls", case["config"]["tool_calls"], None if way == "stop" else "")
    finalization = Finalization(mode="reactive" if way == "reactive" else "proactive")
    policy = Policy(name="case", limits=(rule,), finalization=finalization)
    result = await Driver(policy, client, tools(["same"], executed)).run("question")
    assert len(executed) == case["expect"]["executed"]
    # One tool a call: the tenth execution belongs to the tenth call.
    assert len(client.requests) - len(executed) <= case["expect"]["calls_after_the_limit"][way]
    assert result.status == ("incomplete" if way == "stop" else "finalized")


@reproduces("B14")
@pytest.mark.parametrize("text", [None, ""])
async def test_every_started_tool_is_reported_as_finished_before_the_end(case: Case, text: str | None) -> None:
    most = case["config"]["tool_iterations"]
    client = FakeModel(lambda n, request: asks("look") if request.tools else says())
    policy = Policy(name="case", limits=(limit("tool_iterations", most, text),))
    events = [event async for event in Driver(policy, client, tools(["look"], [])).stream("question")]
    started = [event.id for event in events if isinstance(event, ToolStarted)]
    finished = [event.id for event in events if isinstance(event, ToolFinished)]
    assert len(started) == most
    assert len(set(started) - set(finished)) == case["expect"]["started_without_finished"]
    last = max(i for i, event in enumerate(events) if isinstance(event, ToolFinished))
    ends = [i for i, event in enumerate(events) if isinstance(event, RunEnded)]
    assert ends == [len(events) - 1]
    assert (last < ends[0]) == case["expect"]["finished_before_the_end"]


@reproduces("B15")
def test_time_alone_ends_a_run_whose_tool_does_not(case: Case) -> None:
    script, expect = case["script"], case["expect"]
    wall = case["config"]["wall_ms"]
    steps = Steps(Policy(name="case", limits=(limit("wall", wall),)))
    steps.call()
    steps.now = script["tool_starts_ms"]
    steps.replied("c1")
    started = steps.send(e.ToolRequested(steps.now, "1.0"))
    assert isinstance(started, d.Execute)
    assert started.deadline == expect["tool_deadline_ms"]
    assert steps.wake_at == wall
    stopping = steps.send(e.Tick(wall))
    assert isinstance(stopping, d.Stop)
    ended = steps.send(e.ToolEnded(wall, "1.0", status="cancelled"))
    assert isinstance(ended, d.End) == expect["ended_by_time_alone"]
    before = steps.used
    late = steps.send(e.ToolEnded(script["tool_would_end_ms"], "1.0", status="ok"))
    assert late == d.Wait(NO_TIME)
    assert (steps.used != before) == bool(expect["late_result_changes"])


@reproduces("B15")
async def test_a_run_is_not_kept_by_a_tool_that_takes_too_long(case: Case) -> None:
    wall = case["config"]["wall_ms"] // 5

    async def slow() -> str:
        await asyncio.sleep(case["script"]["tool_would_end_ms"] / 1000)
        return "too late"

    store = RecordingStore()
    policy = Policy(name="case", limits=(limit("wall", wall),))
    began = time.monotonic()
    result = await Driver(policy, model(asks("slow"), says()), [slow], journal=store).run("question")
    took = (time.monotonic() - began) * 1000
    (deadline,) = [decision.deadline for _, decision in store.log if isinstance(decision, d.Execute)]
    assert deadline == store.log[0][0].at + wall
    assert (result.status, result.reason) == ("incomplete", "wall")
    assert wall <= took + 5 < wall + 2_000
    assert problems(result.messages) == []
    assert "too late" not in result.messages[-1].text


@reproduces("B16")
@pytest.mark.parametrize("mode", ["atomic", "partial"])
async def test_a_round_never_runs_more_tools_than_are_left(case: Case, mode: str) -> None:
    executed: list[str] = []
    names = [f"t{i}" for i in range(case["script"]["asks_at_once"])]
    rule = limit("tool_calls", case["config"]["tool_calls"], atomic=mode == "atomic")
    client = model(asks(*names), says())
    result = await Driver(Policy(name="case", limits=(rule,)), client, tools(names, executed)).run("question")
    most = case["expect"]["executed"][mode]
    assert sorted(executed) == names[:most]
    refused = [m for m in result.messages if m.role == "tool" and "limit of 6 tool calls" in m.text]
    assert len(refused) == len(names) - most
    assert problems(result.messages) == []


@reproduces("B21")
async def test_what_a_call_without_an_answer_held_is_free_again(case: Case) -> None:
    script, config = case["script"], case["config"]
    waiting = asyncio.Event()

    async def hang(on_delta: Any) -> None:
        waiting.set()
        await asyncio.Event().wait()

    def answer(n: int, request: Request) -> Any:
        if n >= script["calls_without_an_answer"]:
            return says()
        return ModelError("timeout", "no answer") if n % 2 else hang

    client = FakeModel(answer)
    policy = Policy(name="case", limits=(limit("tokens", config["tokens_per_thread"], scope="thread"),))
    driver = Driver(policy, client, max_output=config["held_per_call"])
    for n in range(script["calls_without_an_answer"]):
        waiting.clear()
        handle = driver.start("question", thread="t")
        if n % 2 == 0:
            await waiting.wait()
            handle.cancel()
        result = await handle
        assert result.status == ("failed" if n % 2 else "cancelled")
        assert result.used.tokens == case["expect"]["held_afterwards"]
    eleventh = await driver.run("question", thread="t")
    assert eleventh.ok == case["expect"]["eleventh_call_admitted"]
    # Nothing is held back from it either.
    assert client.requests[-1].max_output == config["held_per_call"]


@reproduces("B17")
async def test_the_policy_says_how_retries_of_a_tool_count(case: Case) -> None:
    """A retry by the policy is a further attempt of one execution; asked for again by the model it is another one."""
    config, fails = case["config"], case["script"]["tool_fails"]
    attempts: list[int] = []

    async def flaky() -> str:
        attempts.append(1)
        if len(attempts) <= fails:
            raise RuntimeError("not yet")
        return "done"

    calls = limit("tool_calls", config["tool_calls"])
    retry = ToolRule(glob="flaky", retry=Retry(times=config["tool_retries"], least=1, most=1))
    once = await Driver(
        Policy(name="case", limits=(calls,), tools=(retry,)), model(asks("flaky"), says()), [flaky]
    ).run("q")
    assert (once.status, once.used.tool_calls, len(attempts)) == ("completed", 1, fails + 1)

    attempts.clear()
    again = await Driver(Policy(name="case", limits=(calls,)), model(asks("flaky")), [flaky]).run("q")
    assert (again.status, again.reason, len(attempts)) == ("incomplete", "tool_calls", config["tool_calls"])
    assert case["expect"]["said_by_the_policy"]


@reproduces("B24")
async def test_each_client_of_a_chain_is_tried_once_with_its_retries(case: Case) -> None:
    config = case["config"]
    requests: list[str] = []

    def failing(name: str) -> FakeModel:
        def answer(n: int, request: Request) -> ModelError:
            requests.append(name)
            return ModelError("provider", f"{name} is down")

        made = FakeModel(answer)
        made.name = name
        return made

    steps = (Retry(times=config["retries"], least=1, most=1), Fallback(clients=tuple(config["chain"])))
    policy = Policy(name="case", failures=(FailureRule(reasons=("*",), then=steps),))
    result = await Driver(policy, [failing(name) for name in config["chain"]]).run("question")
    assert len(requests) == result.used.llm_attempts == case["expect"]["attempts"]
    assert requests == sorted(requests)
    assert (result.status, result.error) == ("failed", "provider: b is down")


@reproduces("B26")
@pytest.mark.parametrize("kind", [OpenAIChat, Anthropic])
async def test_a_fallback_asks_for_its_own_model(case: Case, kind: type[OpenAIChat | Anthropic]) -> None:
    script = Script.of({"fail": case["script"]["reason"], "when": {"model": "a"}}, {"text": ANSWER})
    async with Rehearsal(script) as server:
        clients = [kind(name, base_url=server.url, name=name) for name in case["config"]["chain"]]
        rule = FailureRule(reasons=(case["script"]["reason"],), then=(Fallback(clients=("b",)),))
        result = await Driver(Policy(name="case", failures=(rule,)), clients).run("question")
        for client in clients:
            await client.aclose()
        assert [entry.model for entry in server.ledger] == ["a", case["expect"]["next_request_names"]]
    assert (result.text, result.client) == (ANSWER, "b")
