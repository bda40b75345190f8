"""Cases about hooks, failures, cancellation and what a run leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from conformance_cases import Case, differs, reproduces
from conformance_world import FakeModel, RecordingStore, asks, events_of, model, policy_of, says
from msgspec import structs

from engine.clients import ModelError
from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Message, Reply, Request, ToolCall
from engine.core.policy import Policy
from engine.core.transcript import problems
from engine.run.driver import Driver, RunError
from engine.run.hooks import CallContext
from engine.run.result import RunResult
from engine.run.results import StopRun
from engine.run.streaming import RunEnded, TextDelta

FREE = Policy(name="no limits")


@reproduces("flow-panic")
async def test_a_processor_that_raises_anything_ends_the_run_with_its_words(case: Case) -> None:
    def panic(request: Request, context: CallContext) -> None:
        raise AssertionError("<panic text>")

    store, client = RecordingStore(), model(says())
    result = await Driver(FREE, client, journal=store, request_processors=[panic]).run("question")
    (event,) = case["expect"]["events"]
    assert events_of(store.log) == [event["type"]]
    assert event["message_contains"] in result.error
    assert client.requests == []
    # Nothing is left of it: the same driver makes its next run.
    assert (await Driver(FREE, client).run("question")).ok


@differs("run-panic")
async def test_a_call_whose_processor_raises_has_been_counted(case: Case) -> None:
    def panic(request: Request, context: CallContext) -> None:
        raise AssertionError("panic")

    store, client = RecordingStore(), model(says())
    result = await Driver(FREE, client, journal=store, request_processors=[panic]).run("question")
    assert events_of(store.log) == ["error"]
    assert case["expect"]["outcome"]["message"] in result.error
    assert (len(client.requests), result.used.llm_calls) == (0, 1)
    assert (case["expect"]["calls"], case["expect"]["counters"]["llm_calls"]) == ([], 0)


@differs("flow-no-responses", "run-final-empty-stream")
async def test_an_answer_without_text_is_a_failure(case: Case) -> None:
    final = case["id"] == "run-final-empty-stream"
    replies = (asks("look"), says("")) if final else (says(""),)
    result = await Driver(policy_of(case["config"]), model(*replies), [look]).run("question")
    assert (result.status, result.reason, result.ok) == ("failed", "empty_answer", False)
    assert problems(result.messages) == []


@reproduces("flow-no-messages")
async def test_a_request_without_messages_is_refused_before_the_provider(case: Case) -> None:
    def empty(request: Request, context: CallContext) -> Request:
        return structs.replace(request, messages=())

    client = model(says())
    result = await Driver(FREE, client, request_processors=[empty]).run("question")
    assert bool(client.requests) == case["expect"]["provider_called"]
    assert (result.status == "failed") == case["expect"]["error"]
    assert "no messages" in result.error


@reproduces("flow-provider-error")
async def test_a_provider_that_fails_has_been_called(case: Case) -> None:
    client = model(ModelError("provider", "it is down"))
    result = await Driver(FREE, client).run("question")
    assert bool(client.requests) == case["expect"]["provider_called"]
    assert (result.status == "failed") == case["expect"]["error"]
    assert (result.reason, result.error) == ("llm_failure", "provider: it is down")


@reproduces("flow-before-custom")
async def test_a_hook_answers_in_the_providers_place(case: Case) -> None:
    words = case["expect"]["second_event"]
    client = model(says())
    handle = Driver(FREE, client, before_model=[lambda request, context: says(words)]).stream("question")
    ended = [event async for event in handle if isinstance(event, RunEnded)]
    assert bool(client.requests) == case["expect"]["provider_called"]
    assert [event.result.text for event in ended] == [words]


@reproduces("flow-before-error")
async def test_a_failing_before_hook_ends_the_run(case: Case) -> None:
    client = model(says())
    log, result = await _run_logged(client, before_model=[_fail])
    assert bool(client.requests) == case["expect"]["provider_called"]
    assert ["start", *events_of(log)] == case["expect"]["events"]
    assert result.error.startswith("host: before_model hook")


@reproduces("flow-after-error")
async def test_a_failing_after_hook_keeps_the_answer_back(case: Case) -> None:
    log, result = await _run_logged(model(says("secret")), after_model=[_fail])
    assert ["start", *events_of(log)] == case["expect"]["events_prefix"]
    assert "secret" not in result.text + "".join(m.text for m in result.messages)


async def _run_logged(client: FakeModel, **hooks: Any) -> tuple[list[tuple[e.AnyEvent, d.AnyDecision]], RunResult]:
    store = RecordingStore()
    result = await Driver(FREE, client, journal=store, **hooks).run("question")
    return store.log, result


def _fail(value: Any, context: CallContext) -> None:
    raise RuntimeError("it did not work")


@differs("run-before-stop-error", "run-final-before-stop-error")
async def test_whatever_a_model_hook_raises_is_one_kind_of_failure(case: Case) -> None:
    def stop(request: Request, context: CallContext) -> None:
        raise StopRun("before model stop")

    client = model(says())
    result = await Driver(policy_of(case["config"]), client, before_model=[stop]).run("question")
    assert case["expect"]["outcome"]["type"] == "stop_agent_error"
    assert (result.status, result.reason) == ("failed", "llm_failure")
    assert result.error.startswith("host: ")
    assert case["expect"]["outcome"]["message"] in result.error
    assert result.used.llm_calls == case["expect"]["counters"]["llm_calls"]
    assert client.requests == []


@differs("run-tool-stop-at-limit")
async def test_a_tool_that_stops_the_run_is_obeyed_and_no_error(case: Case) -> None:
    def stop() -> None:
        raise StopRun("stop here")

    client = model(asks("stop"), says())
    result = await Driver(policy_of(case["config"]), client, [stop]).run("question")
    assert (result.status, result.reason, result.error) == ("cancelled", "tool_stop", "")
    # As in the original: the finalization that was due does not happen.
    assert len(client.requests) == len(case["expect"]["calls"]) == 1
    assert result.used.tool_iterations == case["expect"]["counters"]["tool_iterations"]
    assert result.messages[-1].text == "stop here"


@reproduces("flow-cancel-graceful")
async def test_cancelling_after_the_first_piece_ends_the_stream(case: Case) -> None:
    pieces, result = await _cancelled_at_first_piece(FREE)
    assert case["expect"] == {"closed": result is not None, "saw_model_event": pieces == ["partial"]}


@reproduces("run-cancel-silent", "run-cancel-in-final")
async def test_a_cancelled_run_has_no_error_and_no_answer(case: Case) -> None:
    log: list[tuple[e.AnyEvent, d.AnyDecision]] = []
    pieces, result = await _cancelled_at_first_piece(policy_of(case["config"]), log)
    expect = case["expect"]
    assert [f"response:{piece}" for piece in pieces] + events_of(log) == expect["events"]
    assert expect["outcome"]["kind"] == "cancelled_silently"
    assert (result.status, result.error, result.ok) == ("cancelled", "", False)
    assert result.used.llm_calls == expect["counters"]["llm_calls"]
    calls = [decision for _, decision in log if isinstance(decision, d.Call)]
    assert [call.instruction or None for call in calls] == [call.get("instruction") for call in expect["calls"]]


async def _cancelled_at_first_piece(
    policy: Policy, log: list[tuple[e.AnyEvent, d.AnyDecision]] | None = None
) -> tuple[list[str], RunResult]:
    store = RecordingStore()
    handle = Driver(policy, model(_streamed("partial", None)), [look], journal=store).stream("question")
    pieces: list[str] = []
    async for event in handle:
        if isinstance(event, TextDelta):
            pieces.append(event.text)
            handle.cancel()
    if log is not None:
        log += store.log
    return pieces, await handle


def _streamed(*pieces: str | None) -> Callable[[Any], Any]:
    """A reply that arrives in pieces; at ``None`` it hangs."""

    async def stream(on_delta: Callable[[str], Any]) -> Reply:
        for piece in pieces:
            if piece is None:
                await asyncio.Event().wait()
            on_delta(piece or "")
            await asyncio.sleep(0)
        return says("".join(piece or "" for piece in pieces))

    return stream


@differs("flow-end-mid-stream")
async def test_ending_a_run_cuts_its_stream(case: Case) -> None:
    handle = Driver(FREE, model(_streamed("a", "b"))).stream("question")
    pieces = []
    async for event in handle:
        if isinstance(event, TextDelta):
            pieces.append(event.text)
            handle.cancel()
    assert len(pieces) == 1 != case["expect"]["chunks"]
    assert (await handle).status == "cancelled"


@differs("flow-end-in-preprocess")
async def test_a_processor_ends_a_run_by_raising_and_the_later_ones_do_not_run(case: Case) -> None:
    ran: list[str] = []

    def first(request: Request, context: CallContext) -> None:
        ran.append("first")
        raise RuntimeError("no")

    def second(request: Request, context: CallContext) -> None:
        ran.append("second")

    client = model(says())
    result = await Driver(FREE, client, request_processors=[first, second]).run("question")
    assert bool(client.requests) == case["expect"]["provider_called"]
    assert ran == ["first"]
    assert case["expect"]["second_processor_ran"]
    assert result.status == "failed"


@differs("flow-resume-runs-pending-tool")
async def test_a_pending_tool_is_run_once_when_its_run_is_resumed(case: Case) -> None:
    executed: list[str] = []
    started = asyncio.Event()

    async def resume_tool() -> str:
        if not started.is_set():
            started.set()
            await asyncio.Event().wait()  # the process dies here
        executed.append("resume_tool")
        return "done"

    store = _DyingStore()
    client = model(asks("resume_tool"), says(""))
    driver = Driver(FREE, client, [resume_tool], journal=store)
    handle = driver.start("question", run_id="r")
    await started.wait()
    store.closed = True  # what happens to the first process is written down no more
    asked = len(client.requests)
    resumed = Driver(FREE, client, [resume_tool], journal=_copied(store)).resume("r")
    result = await resumed
    assert executed == case["expect"]["executed"]
    assert len(client.requests) == asked + 1
    # An empty answer is no success, whatever came before it.
    assert (result.status, result.reason) == ("failed", "empty_answer")
    handle.cancel()
    await asyncio.gather(handle, return_exceptions=True)

    # A conversation with an unanswered call cannot be handed in: its tool may have run, who knows.
    with pytest.raises(RunError, match="cannot be sent"):
        driver.start([Message("user", "question"), asks("resume_tool").message])


class _DyingStore(RecordingStore):
    closed = False

    def append(self, run: str, seq: int, event: e.AnyEvent, decision: d.AnyDecision) -> None:
        if not self.closed:
            super().append(run, seq, event, decision)


def _copied(store: RecordingStore) -> RecordingStore:
    copy = RecordingStore()
    copy._records, copy._contents = dict(store._records), dict(store._contents)
    copy._steps = {run: list(steps) for run, steps in store._steps.items()}
    return copy


@differs("run-next-run-sees-downgraded-orphan")
async def test_a_conversation_with_an_unanswered_call_is_refused(case: Case) -> None:
    orphan = [Message("user", "q"), Message("assistant", tool_calls=(ToolCall("c1", "look"),)), Message("user", "more")]
    client = model(says())
    with pytest.raises(RunError, match="c1"):
        await Driver(FREE, client, [look]).run(orphan)
    assert client.requests == []
    assert case["expect"]["orphan_becomes"] == "user message"
    # And none of our own runs leaves one behind, however it ended.
    stopped = await Driver(policy_of({"max_tool_iterations": 0}), model(asks("look")), [look]).run("q")
    assert stopped.status == "incomplete"
    assert (await Driver(FREE, client, [look]).run([*stopped.messages, Message("user", "more")])).ok


@differs("run-trace-status-asymmetry")
async def test_both_limits_end_a_run_alike(case: Case) -> None:
    ends = []
    for maximum in ("max_llm_calls", "max_tool_iterations"):
        result = await Driver(policy_of({maximum: 1}), model(asks("look")), [look]).run("question")
        ends.append(result.status)
    assert ends == ["incomplete", "incomplete"]
    assert case["expect"]["trace"] == ["completed", "failed"]


@differs("run-no-model-not-counted")
def test_a_driver_without_a_client_cannot_be_made(case: Case) -> None:
    with pytest.raises(ValueError, match="needs a client"):
        Driver(FREE, [])
    assert case["expect"]["events"] == ["error:flow_error"]


@differs("run-final-zero-tool-limit")
async def test_a_limit_of_zero_is_one(case: Case) -> None:
    client = model(says())
    result = await Driver(policy_of(case["config"]), client, [look]).run("question")
    assert (result.status, result.reason) == ("finalized", "tool_iterations")
    assert [bool(request.tools) for request in client.requests] == [False]
    assert len(case["expect"]["calls"]) == 3


@differs("run-final-negative-llm-limit")
def test_a_negative_limit_is_a_mistake(case: Case) -> None:
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        policy_of(case["config"])


@differs("run-final-nonfinal-response")
async def test_a_reply_is_whole_or_a_failure(case: Case) -> None:
    policy = policy_of(case["config"])
    whole = await Driver(policy, model(asks("look"), says("not done")), [look]).run("question")
    assert (whole.status, whole.text) == ("finalized", "not done")
    cut = ModelError("truncated", "the stream ended early", partial="held", text="not d")
    broken = await Driver(policy, model(asks("look"), cut), [look]).run("question")
    assert (broken.status, broken.reason, broken.text, broken.partial) == ("failed", "llm_failure", "not d", True)
    assert case["expect"]["outcome"]["kind"] == "ended_without_final"


@differs("run-goal-hook-continues-normally")
async def test_a_reply_without_tool_calls_ends_the_run_whatever_a_hook_makes_of_it(case: Case) -> None:
    def replace(reply: Reply, context: CallContext) -> Reply:
        return structs.replace(reply, message=Message("assistant", "not yet"))

    client = model(says())
    result = await Driver(policy_of(case["config"]), client, after_model=[replace]).run("question")
    assert (result.status, result.text, len(client.requests)) == ("completed", "not yet", 1)
    assert len(case["expect"]["calls"]) == 2


@reproduces("run-graph-llm-node-not-counted")
async def test_calls_that_a_tool_makes_with_a_client_of_its_own_are_not_the_runs(case: Case) -> None:
    own = model(says("own"))

    async def node() -> str:
        for _ in case["script"]:
            await own.complete(Request(messages=(Message("user", "q"),)))
        return "done"

    config = {**case["config"], "max_llm_calls": 2}  # one for the call that asks for the tool
    result = await Driver(policy_of(config), model(asks("node"), says()), [node]).run("question")
    assert (not result.ok) == case["expect"]["refused"]
    assert (len(own.requests), result.used.llm_calls) == (2, 2)


def look() -> str:
    """Look something up."""
    return "found"
