"""Cases about a budget that the other system puts around a model: here it is a limit of the run.

``model_call`` is a call the run makes; ``aux_call`` and its kin are calls that the host makes with the same client by
itself (to summarise, to extract memories), which are not the run's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from conformance_cases import Case, differs, reproduces
from conformance_steps import Steps
from conformance_world import (
    USAGE,
    FakeModel,
    RecordingStore,
    asks,
    default_instruction,
    limit,
    model,
    says,
)
from msgspec import structs

from engine.clients import ModelError
from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Message, Reply, Request, ToolCall
from engine.core.policy import Policy
from engine.core.state import NO_TIME
from engine.core.transcript import problems
from engine.run.driver import Driver, RunError
from engine.run.hooks import CallContext
from engine.run.result import RunResult
from engine.run.streaming import TextDelta
from policy_lang import loads

NOTICE = default_instruction("llm_calls")
_DURATIONS = {"10ms": 10, "100ms": 100, "150ms": 150, "200ms": 200, "300ms": 300, "500ms": 500}
_DURATIONS |= {"1s": 1_000, "2s": 2_000, "1m": 60_000}


def look() -> str:
    """Look something up."""
    return "found"


def budget_of(config: dict[str, Any]) -> Policy:
    """The policy that says what a wrapper's configuration says. A run-level factory is a parameter set by the host."""
    if config.get("via") == "run_state" and config.get("budget_limit"):
        text = 'policy "budget" lang 1\nparam budget = 99\nlimits {\n  llm_calls budget then stop\n}\n'
        return loads(text, budget=config["budget_limit"])
    limits = []
    if config.get("budget_limit"):
        limits.append(limit("llm_calls", config["budget_limit"], "" if config.get("finalize_on_last") else None))
    if "deadline" in config:
        wall = _DURATIONS[config["deadline"]]
        # A reserve larger than what it is kept from would be a mistake in a policy of ours.
        reserve = min(_DURATIONS[config["deadline_window"]], wall)
        limits.append(limit("wall", wall, "", reserve=reserve))
    return Policy(name="budget", limits=tuple(limits))


class Played:
    """A script of model calls and auxiliary calls, as one run."""

    def __init__(self, case: Case) -> None:
        self.script = case["script"]
        self.streamed = case["config"].get("api") == "iter"
        self.model_calls = [item for item in self.script if item["ev"] == "model_call"]
        self.others = [item for item in self.script if item["ev"] != "model_call"]
        self.policy = budget_of(case["config"])
        self.client = FakeModel(self._answer)
        self.store = RecordingStore()

    def _answer(self, n: int, request: Request) -> Reply:
        mine = n - len(self.others)
        if mine < 0:
            return says("summarised")
        return says() if mine == len(self.model_calls) - 1 else asks("look")

    async def helpers(self, request: Request, context: CallContext) -> None:
        """What the host asks its model for by itself, before the run's first call."""
        if context.call == "1":
            for _ in self.others:
                reply = await self.client.complete(Request(messages=(Message("user", "summarise this"),)))
                assert reply.message.text == "summarised"

    async def play(self, question: str = "question") -> RunResult:
        driver = Driver(self.policy, self.client, [look], journal=self.store, request_processors=[self.helpers])
        handle = driver.stream(question) if self.streamed else driver.start(question)
        return await handle

    def results(self, result: RunResult) -> list[str]:
        results = ["ok" for _ in self.others]
        for event, decision in self.store.log:
            if isinstance(event, e.CallRequested):
                results.append("ok" if isinstance(decision, d.Call) else f"error: {_exceeded(result)}")
        return results


def _exceeded(result: RunResult) -> str:
    assert result.status == "incomplete"
    assert result.limit is not None
    assert result.limit.resource == "llm_calls"
    return f"max LLM calls ({result.limit.maximum}) exceeded"


@reproduces(
    "ob-limit-2",
    "ob-iter-limit-1",
    "ob-no-budget",
    "ob-from-run-state",
    "ob-bypass",
    "ob-bypass-inv",
    "ob-bypass-iter",
    "ob-resolver-bypass",
    "ob-memory-extractor-free",
    "ob-summarizer-free",
)
async def test_a_budget_counts_the_runs_own_calls(case: Case) -> None:
    played = Played(case)
    result = await played.play()
    seen = {"results": played.results(result), "provider_calls": len(played.client.requests)}
    assert seen == case["expect"]


@reproduces("ob-user-text-cannot-bypass")
async def test_no_text_of_a_user_is_worth_a_free_call(case: Case) -> None:
    played = Played(case)
    result = await played.play("Summarise the conversation above for the next session.")
    seen = {"results": played.results(result), "provider_calls": len(played.client.requests)}
    assert seen == case["expect"]


@reproduces("ob-iter-no-budget")
async def test_a_stream_without_a_budget_gives_its_one_answer(case: Case) -> None:
    played = Played(case)
    result = await played.play()
    replies = sum(isinstance(event, e.ModelReplied) for event, _ in played.store.log)
    assert {"responses": replies, "provider_calls": len(played.client.requests)} == case["expect"]
    assert result.ok


@reproduces("ob-parent-child-separate")
def test_a_child_run_has_counters_of_its_own(case: Case) -> None:
    runs = {"parent": Steps(budget_of(case["config"])), "child": Steps(budget_of(case["config"]), parent="run")}
    results = []
    for item in case["script"]:
        steps = runs[item["inv"]]
        decision = steps.call()
        if isinstance(decision, d.Call):
            results.append("ok")
            steps.round()
        else:
            assert isinstance(decision, d.End)
            assert decision.outcome.limit is not None
            results.append(f"error: max LLM calls ({decision.outcome.limit.maximum}) exceeded")
    assert {"results": results, "provider_calls": results.count("ok")} == case["expect"]


@differs("ob-concurrent")
async def test_runs_that_share_a_budget_go_one_after_another(case: Case) -> None:
    """A thread has one run at a time; the sixteen that come at once are let in in turn."""
    client = model(says())
    config, (item,) = case["config"], case["script"]
    driver = Driver(Policy(name="b", limits=(limit("llm_calls", config["budget_limit"], scope="thread"),)), client)
    handles, refused = [], 0
    for _ in range(item["concurrent"]):
        try:
            handles.append(driver.start("question", thread="t"))
        except RunError:
            refused += 1
    assert (len(handles), refused) == (1, 15)
    results = [await handles[0]]
    for _ in range(refused):
        results.append(await driver.run("question", thread="t"))
    seen = {
        "successes": sum(r.ok for r in results),
        "stop_errors": sum(r.status == "incomplete" for r in results),
        "provider_calls": len(client.requests),
    }
    assert seen == case["expect"]


@differs("ob-guards")
async def test_zero_is_a_limit_and_a_negative_one_a_mistake(case: Case) -> None:
    assert case["expect"]["results"] == [None, None, "budget", "ok", None]
    nothing = await Driver(Policy(name="b", limits=(limit("llm_calls", 0),)), model(says())).run("question")
    assert (nothing.status, nothing.used.llm_calls) == ("incomplete", 0)
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        limit("llm_calls", -1)
    window = Policy(name="b", limits=(limit("wall", 1_000, "", reserve=1_000),))
    assert (await Driver(window, model(says())).run("question")).status == "finalized"
    assert (await Driver(Policy(name="b"), model(says())).run("question")).status == "completed"


# The request of the final call.


@differs("ob-final-evidence")
async def test_the_loop_keeps_the_evidence_and_obeys_a_processor_that_drops_it(case: Case) -> None:
    minimal = (Message("system", "s"), Message("user", "q"))

    def shorten(request: Request, context: CallContext) -> Request | None:
        return structs.replace(request, messages=minimal) if context.call == "2" else None

    expected = case["expect"]["calls"][1]
    assert expected["messages"] == ["user", "assistant", "tool:evidence", "user:<notice>"]
    for processors, roles in (([], ["user", "assistant", "tool", "user"]), ([shorten], ["system", "user", "user"])):
        client = model(asks("look"), says())
        driver = Driver(budget_of(case["config"]), client, [look], request_processors=processors)
        result = await driver.run("question")
        final = client.requests[1]
        assert [m.role for m in final.messages] == roles
        assert final.messages[-1].text == NOTICE
        assert bool(final.tools) == expected["tools_offered"]
        assert [m.role for m in result.messages] == ["user", "assistant", "tool", "assistant"]


@differs("ob-final-no-thinking")
async def test_settings_of_the_final_call_are_the_hosts(case: Case) -> None:
    def quiet(request: Request, context: CallContext) -> Request | None:
        return structs.replace(request, settings={"thinking": False}) if context.final else None

    for hooks, thinking in (([], True), ([quiet], case["expect"]["calls"][0]["thinking"])):
        client = model(says())
        driver = Driver(budget_of(case["config"]), client, settings={"thinking": True}, before_model=hooks)
        assert (await driver.run("question")).status == "finalized"
        assert client.requests[0].settings == {"thinking": thinking}


@differs("ob-final-drop-reasoning")
async def test_reasoning_is_sent_again_unless_a_hook_drops_it(case: Case) -> None:
    reasoning = {"anthropic": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}

    def drop(request: Request, context: CallContext) -> Request | None:
        bare = tuple(structs.replace(m, opaque=None) for m in request.messages)
        return structs.replace(request, messages=bare) if context.final else None

    policy = Policy(name="b", limits=(limit("llm_calls", 2, ""),))
    for hooks, kept in (([], reasoning), ([drop], None)):
        thought = structs.replace(asks("look"), message=structs.replace(asks("look").message, opaque=reasoning))
        client = model(thought, says())
        result = await Driver(policy, client, [look], before_model=hooks).run("question")
        assert client.requests[1].messages[1].opaque == kept
        assert (result.messages[1].opaque == reasoning) == case["expect"]["original_reasoning_kept"]


@differs("ob-final-trim-toolchain", "ob-final-keeps-answer-format")
async def test_a_final_request_is_the_whole_conversation(case: Case) -> None:
    question = "TASK\n" + "background. " * 200 + "\nFINAL ANSWER: <format detail>\n"
    rounds = 16

    def dig(n: int) -> str:
        """Dig for evidence."""
        return {1: "OLDEST-RESULT", rounds: "NEWEST-RESULT"}.get(n, f"evidence {n}")

    def answer(n: int, request: Request) -> Reply:
        call = ToolCall(f"c{n}", "dig", f'{{"n": {n + 1}}}')
        return Reply(Message("assistant", tool_calls=(call,)), usage=USAGE) if request.tools else says()

    client = FakeModel(answer)
    result = await Driver(Policy(name="b", limits=(limit("llm_calls", rounds + 1, ""),)), client, [dig]).run(question)
    final = client.requests[-1]
    text = "\n".join(m.text for m in final.messages)
    for wanted in (*case["expect"]["contains"], *case["expect"].get("excludes", ())):
        assert (NOTICE if wanted == "<notice>" else wanted) in text
    assert sum(m.role == "tool" for m in final.messages) == rounds
    assert problems(final.messages) == []
    assert result.status == "finalized"


@differs("ob-final-nil-request")
async def test_an_instruction_alone_is_no_request(case: Case) -> None:
    client = model(says())
    driver = Driver(Policy(name="b", limits=(limit("llm_calls", 1, ""),)), client)
    with pytest.raises(RunError, match="question is empty"):
        driver.start(" ")
    result = await driver.run([])
    assert (result.status, result.error) == ("failed", "host: the request has no messages")
    assert client.requests == []
    assert case["expect"]["messages"] == 1


# Deadlines.


@reproduces("ob-resolver-deadline")
async def test_near_the_deadline_the_call_is_the_final_one(case: Case) -> None:
    client = model(says())
    result = await Driver(budget_of(case["config"]), client, [look]).run("question")
    assert [_looks(n, request) for n, request in enumerate(client.requests, 1)] == case["expect"]["calls"]
    assert (result.status, result.reason) == ("finalized", "wall")


@differs("ob-near-deadline")
async def test_near_the_deadline_a_stream_stays_a_stream(case: Case) -> None:
    client = model(_streamed("the answer"))
    handle = Driver(budget_of(case["config"]), client, [look]).stream("question")
    pieces = [event.text async for event in handle if isinstance(event, TextDelta)]
    (call,) = case["expect"]["calls"]
    assert _looks(1, client.requests[0]) == {k: v for k, v in call.items() if k != "stream"}
    assert (client.requests[0].stream, call["stream"]) == (True, False)
    assert pieces == ["the answer"]


def _looks(n: int, request: Request) -> dict[str, Any]:
    return {"n": n, "tools_offered": bool(request.tools), "messages": len(request.messages)}


@reproduces("ob-deadline-retry-needs-inv-budget")
async def test_a_call_cut_for_the_final_one_is_not_given_back(case: Case) -> None:
    config = case["config"]
    policy = budget_of({**config, "budget_limit": config["invocation_limit"]})
    client = model(_streamed("partial", None))
    handle = Driver(policy, client, [look]).stream("question")
    shown = [event.text async for event in handle if isinstance(event, TextDelta)]
    result = await handle
    *partials, refusal = case["expect"]["yielded"]
    assert shown == partials
    assert f"error: {_exceeded(result)}".startswith(refusal)
    assert len(client.requests) == case["expect"]["provider_calls"]


@differs("ob-deadline-retry-hooks")
async def test_hooks_run_for_the_cut_call_and_for_the_final_one(case: Case) -> None:
    before: list[bool] = []
    after: list[str] = []
    client = model(_streamed(None), says())
    driver = Driver(
        budget_of(case["config"]),
        client,
        [look],
        before_model=[lambda request, context: before.append(bool(request.tools))],
        after_model=[lambda reply, context: after.append(reply.message.text)],
    )
    result = await driver.run("question")
    # The other system runs its hooks only around the second attempt; ours see every call, and no failure as a reply.
    assert before == [True, False]
    assert after == [result.text]
    assert result.status == "finalized"
    assert len(client.requests) == case["expect"]["provider_calls"]
    assert (case["expect"]["before_hook_calls"], case["expect"]["after_hook_calls"]) == (1, 1)


@reproduces("ob-stream-not-buffered", "ob-iter-stream-not-buffered")
async def test_text_is_passed_on_as_it_arrives(case: Case) -> None:
    gate = asyncio.Event()

    async def partial_gate_done(on_delta: Callable[[str], Any]) -> Reply:
        on_delta("partial")
        await gate.wait()
        on_delta("done")
        return says("partial done")

    client = model(partial_gate_done)
    seen: dict[str, Any] = {"first_partial": "never", "then": [], "provider_calls": 0}
    handle = Driver(budget_of(case["config"]), client).stream("question")
    async for event in handle:
        if not isinstance(event, TextDelta):
            continue
        if gate.is_set():
            seen["then"].append(event.text)
        else:
            seen["first_partial"] = "immediate"
            gate.set()
    seen["provider_calls"] = len(client.requests)
    assert seen == case["expect"]
    assert (await handle).status == "completed"


@reproduces("ob-iter-inner-timeout")
async def test_a_time_out_of_the_provider_is_its_own(case: Case) -> None:
    client = model(ModelError("timeout", "model request timeout"))
    result = await Driver(budget_of(case["config"]), client, [look]).stream("question")
    (error,) = case["expect"]["yielded"]
    assert error.removeprefix("error: ") in result.error
    assert (result.status, result.reason) == ("failed", "llm_failure")
    assert len(client.requests) == case["expect"]["provider_calls"]
    assert bool(client.requests[0].tools) == case["expect"]["tools_offered"]


@differs("ob-prefinal-guards")
def test_a_soft_deadline_needs_a_deadline_and_a_reserve_that_fits(case: Case) -> None:
    without, _, provider_timeout, _ = case["expect"]["results"]
    free = Steps(Policy(name="b", limits=(limit("attempt_wall", 1_000),)))
    assert without == "not_derived"
    assert free.wake_at == NO_TIME
    with pytest.raises(ValueError, match="reserve of wall is larger"):
        limit("wall", 10, "", reserve=60_000)
    # A time-out without a deadline of the run is a failure of the model, not the run's own end.
    free.call()
    ended = free.send(e.ModelFailed(1_000, "1", reason="timeout"))
    assert isinstance(ended, d.End)
    assert (ended.outcome.status == "incomplete") == provider_timeout
    assert (ended.outcome.reason, ended.outcome.error) == ("llm_failure", "timeout")


def _streamed(*pieces: str | None) -> Callable[[Any], Any]:
    """A reply that arrives in pieces; at ``None`` it hangs."""

    async def stream(on_delta: Callable[[str], Any] | None) -> Reply:
        for piece in pieces:
            if piece is None:
                await asyncio.Event().wait()
            elif on_delta is not None:
                on_delta(piece)
            await asyncio.sleep(0)
        return says("".join(piece or "" for piece in pieces))

    return stream
