"""Cases about one run without a tree: how it ends, what is tried again, and who judges its answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conformance_cases import Case, differs, reproduces
from conformance_tree_models import results_of
from conformance_tree_policies import SCALE, STATUS
from conformance_trees import Play
from conformance_world import asks, limit, model, says

from engine.clients import OpenAIChat
from engine.clients.classify import retry_after_ms
from engine.core.ladders import Consult, Retry
from engine.core.ladders import Stop as StopStep
from engine.core.policy import FailureRule, Policy
from engine.rehearsal import Rehearsal, Script
from engine.run.driver import Driver
from engine.run.resolvers import ResolverContext
from engine.run.result import RunResult
from engine.run.results import ToolResult
from engine.run.streaming import RunEnded

# Ends.


def turns(case: Case) -> Policy:
    most = case["config"]["agents"]["c"].get("max_turns")
    return Policy(name="case", limits=(limit("llm_calls", most),) if most else ())


@reproduces("RUN-CAP-STREAM", "RUN-DONE", "RUN-DONE-LAST-TURN", "RUN-CANCEL-UNUSED")
async def test_how_a_run_ends(case: Case) -> None:
    play = Play(case)
    handle = Driver(turns(case), play.models["c"], [play.world.look_up]).start(
        "question", stream="stream" in case["script"][0]["op"]
    )
    ends = (
        [event async for event in handle if isinstance(event, RunEnded)] if "stream" in case["script"][0]["op"] else []
    )
    result = await handle
    assert result.status == STATUS[case["script"][0]["expect"]["status"]]
    assert [event.result for event in ends] == [result] * len(ends)
    # A way to cancel that nobody uses changes nothing, and neither does one that is used too late.
    handle.cancel("too late")
    assert (await handle).status == result.status


@differs("RUN-MAXTURNS-DEFAULT")
async def test_no_limit_that_no_file_states(case: Case) -> None:
    play = Play(case)
    loop = play.models["c"].answer
    play.models["c"].answer = lambda n, request: loop(n, request) if n < 2 * case["expect"]["default"] else says()
    result = await Driver(turns(case), play.models["c"], [play.world.look_up]).run("question")
    assert (result.status, result.used.llm_calls) == ("completed", 2 * case["expect"]["default"] + 1)


# What is tried again.


def failures(config: dict[str, Any]) -> tuple[FailureRule, ...]:
    """The original's retries as a rule for everything, and what its classifier says as a rule for that reason."""
    retry = (Retry(times=config["retries"], least=1, most=1),) if config["retries"] else ()
    rules = [FailureRule(reasons=("*",), then=retry)] if retry else []
    for reason, what in config.get("rule", {}).items():
        rules.append(FailureRule(reasons=(reason,), then=retry if what == "retry" else (StopStep(),)))
    return tuple(rules)


@reproduces(
    "RES-503-OK",
    "RES-EXHAUST",
    "RES-CANCEL-NO-RETRY",
    "RES-ONERROR-FAIL",
    "RES-ONERROR-RETRY",
    "RES-DEFAULT-429",
    "RES-DEFAULT-400",
    "RES-402-NOT-PENDING",
)
async def test_what_is_tried_again(case: Case) -> None:
    config, expect = case["config"], case["expect"]
    kinds: dict[Any, dict[str, Any]] = {"ok": {"text": "ok"}, "hang": {"broken": "hang"}}
    replies = [kinds.get(answer, {"status": answer}) for answer in config["answers"]]
    replies[-1]["times"] = "always"
    async with Rehearsal(Script.of(*replies)) as server:
        client = OpenAIChat("any", base_url=server.url)
        handle = Driver(Policy(name="case", failures=failures(config)), client).start("question")
        if "hang" in config["answers"]:
            while not server.ledger.total:
                await asyncio.sleep(0.01)
            handle.cancel()
        result = await asyncio.wait_for(handle, 20)
        await client.aclose()
        received = server.ledger.total
    assert received == expect.get("http_calls", received)
    assert (not result.ok) == expect.get("error", False)
    assert result.status == STATUS.get(expect.get("status", ""), result.status)
    assert result.status != "suspended"
    if "info" in expect:
        assert str(config["answers"][0]) in result.error or config.get("rule", {}).keys() & set(
            result.error.split(": ")
        )


@reproduces("RES-RETRYAFTER-0", "RES-RETRYAFTER-7", "RES-RETRYAFTER-5.9", "RES-RETRYAFTER-+5", "RES-RETRYAFTER-abc")
def test_what_a_provider_asks_to_wait(case: Case) -> None:
    said = retry_after_ms(case["config"]["retry_after_header"], 0.0)
    assert (said is not None) == case["expect"]["honored"]
    assert said in (None, _ms(case["expect"]["delay_s"]))


def _ms(delay: Any) -> int | None:
    return delay * 1000 if isinstance(delay, int) else None


@differs("RES-RETRYAFTER-2147483648", "RES-RETRYAFTER-99999999999999999999")
def test_a_number_is_a_number_however_large(case: Case) -> None:
    said = retry_after_ms(case["config"]["retry_after_header"], 0.0)
    # The policy's upper bound is waited, not the driver's own backoff.
    assert said == 366 * 24 * 3600 * 1000
    assert case["expect"]["honored"] is False


# What may be done at a limit: the host's function chooses.


def consulted(case: Case, seen: list[ResolverContext], answer: Any) -> Play:
    """A node that may run once, and whose end the host's function is asked about.

    It has tokens for one run: of ``llm_calls`` the function is asked before the last one, while it can still be final.
    """

    def chooses(context: ResolverContext) -> Any:
        seen.append(context)
        if answer == "raises":
            raise RuntimeError("it does not know")
        return None if answer == "nothing" else answer

    ladder = (Consult(name="chooses"), StopStep())
    agent = case["config"]["agents"]["w"]
    case = {**case, "config": {"agents": {"w": {**agent, "budget": {"maxTokens": agent["tokens_per_call"]}}}}}
    return Play(case, resolvers={"chooses": chooses}, ladder=ladder if answer != "none" else ())


@reproduces("ONB-UNSET", "ONB-STOP", "ONB-UNKNOWN-IS-STOP")
async def test_the_host_may_say_that_a_run_stops(case: Case) -> None:
    answers = case["config"]["agents"]["w"]["on_budget"]
    for answer in answers if isinstance(answers, list) else [answers]:
        seen: list[ResolverContext] = []
        async with consulted(case, seen, answer) as play:
            results = []
            for _ in range(2):
                play.runtime.wake(await node_of(play), "go")
                results.append(await play.runtime.wait(play.nodes["W"]))
            assert [result.status for result in results] == ["completed", "incomplete"]
            assert results[1].reason == "tokens"
            assert play.runtime.inspect(play.nodes["W"]).used.llm_calls == 1
            assert len(seen) == (answer != "none")
            assert play.runtime.inspect(play.nodes["W"]).state == "idle"
            # What is no step of the ladder is told, and the next step taken.
            notes = [note for _, decision in play.store.log for note in decision.notes]
            warned = any(note.kind == "warn" and note.text.startswith("chooses failed") for note in notes)
            assert warned == (answer not in ("stop", "none"))


async def node_of(play: Play) -> Any:
    if "W" not in play.nodes:
        await play.do({"op": "spawn", "parent": "root", "agent": "w", "as": "W"})
    return play.nodes["W"]


@differs("ONB-INFO")
async def test_what_the_host_is_told_when_it_chooses(case: Case) -> None:
    seen: list[ResolverContext] = []
    async with consulted(case, seen, "stop") as play:
        for prompt in ("one", "two"):
            play.runtime.wake(await node_of(play), prompt)
            await play.runtime.wait(play.nodes["W"])
            assert len(seen) == (prompt == "two")
        info = case["expect"]["info"]
        (context,) = seen
        assert play.path(context.run.split("@")[0]) == info["handle"]
        tokens = info["tokens"] * SCALE
        assert (context.resource, context.used, context.maximum) == ("tokens", tokens, tokens)
        assert context.messages[-1].text == info["prompt"]
        # Only the limit in question is told of: the other counters are no argument for or against it.
        assert (info["turns"], hasattr(context, "turns")) == (1, False)


# Judging an answer: a gate is a loop of the host around runs.


async def gated(play: Play, verify: Any, attempts: int) -> tuple[list[RunResult], bool]:
    """Wake a node again with the reason while its answer does not pass. A run that is no answer is not judged."""
    results: list[RunResult] = []
    if attempts < 1:
        raise ValueError("a gate without attempts")
    node, said = list(play.nodes.values())[-1], "go"
    while len(results) < attempts:
        play.runtime.wake(node, said)
        results.append(await play.runtime.wait(node))
        if not results[-1].ok or (reason := verify(len(results))) is None:
            return results, results[-1].ok
        said = f"not yet: {reason}"
    return results, False


GATE = {"agents": {"w": {"model": "text", "tokens_per_call": 10}}}
WORKER = {"op": "spawn", "parent": "root", "agent": "w", "as": "W"}


@reproduces("GRD-ABSENT")
async def test_without_a_gate_an_answer_is_the_end(case: Case) -> None:
    async with Play({**case, "config": GATE}) as play:
        await play.do(WORKER)
        results, passed = await gated(play, lambda n: None, 1)
        assert (results[-1].status, len(results), passed) == ("completed", case["expect"]["attempts"], True)


@differs("GRD-BLOCK-PASS", "GRD-UNVERIFIABLE", "GRD-NO-PLAN", "GRD-ACCUMULATED", "GRD-BOUND-REQUIRED")
async def test_a_gate_is_a_loop_of_the_host(case: Case) -> None:
    config, expect = case["config"], case["expect"]
    left = config.get("open_after", [0])

    def verify(n: int) -> str | None:
        return "an item is open" if left[min(n, len(left)) - 1] else None

    async with Play({**case, "config": GATE}) as play:
        await play.do(WORKER)
        if expect.get("error"):
            with pytest.raises(ValueError, match="without attempts"):
                await gated(play, verify, config["attempts"])
            return
        results, passed = await gated(play, verify, config["attempts"])
        assert len(results) == expect.get("attempts", len(results))
        assert passed == (expect["status"] == "done")
        # The original's run is `incomplete`; each of these is complete, and what they came to is the host's verdict.
        assert {result.status for result in results} == {"completed"}
        assert [task for task in play.world.tasks if "open" in task] == ["not yet: an item is open"] * (
            len(results) - 1
        )


@differs("GRD-DELEGATED-PASS", "GRD-DELEGATED-STOP")
async def test_a_budget_bounds_the_attempts_of_a_gate(case: Case) -> None:
    attempts = case["config"]["agents"]["child"]["completion"]["maxAttempts"]
    config = {
        "agents": {"w": {"model": "look_up", "lifetime": True, "budget": {"maxTurns": 3 if attempts == 2 else 30}}}
    }
    async with Play({**case, "config": config, "script": []}) as play:
        await play.do(WORKER)
        results, passed = await gated(play, lambda n: None if n == 2 and attempts > 2 else "open", attempts)
        stopped = case["script"][0]["expect"]["status"] == "incomplete"
        assert passed != stopped
        assert (results[-1].status, len(results)) == ("incomplete" if stopped else "completed", 2)
        assert len(play.world.calls) >= case["expect"].get("llm_calls_at_least", 3)


@differs("GRD-TURNS-ACCUMULATE")
async def test_limits_per_node_count_over_its_runs(case: Case) -> None:
    async with Play({**case, "config": GATE}) as play:
        await play.do(WORKER)
        seen = []
        for _ in range(case["config"]["runs"]):
            play.runtime.wake(play.nodes["W"], "go")
            await play.runtime.wait(play.nodes["W"])
            view = play.runtime.inspect(play.nodes["W"])
            assert view.state == case["expect"]["status"]
            seen.append(view.used.llm_calls)
        assert seen == sorted(set(seen))


@reproduces("GRD-FIRST-DENY")
async def test_the_first_hook_that_answers_is_the_last_that_is_asked(case: Case) -> None:
    asked: list[str] = []
    executed: list[str] = []

    def denies(invocation: Any) -> ToolResult:
        asked.append("denies")
        return ToolResult("first: not this one", "failed")

    def allows(invocation: Any) -> None:
        asked.append("allows")

    def look() -> str:
        executed.append("look")
        return "done"

    client = model(asks("look"), says())
    hooks = [denies, allows]
    assert [hook.__name__ for hook in hooks] == case["config"]["before_tool"]
    result = await Driver(Policy(name="case"), client, [look], before_tool=hooks).run("question")
    assert result.ok
    (text,) = results_of(client.requests[1])
    expect = case["expect"]
    assert (bool(executed), "allows" in asked) == (expect["tool_executed"], expect["second_ran"])
    assert text.startswith(expect["result"])


@differs("GRD-REGISTRY")
async def test_hooks_hold_for_delegates_too(case: Case) -> None:
    denied: list[str] = []

    def denies(invocation: Any) -> ToolResult | None:
        if invocation.name != "lookup":
            return None
        denied.append(invocation.name)
        return ToolResult("not this one", "failed")

    agents = {"p": {"model": "one_task", "team": ["w"]}, "w": {"model": "look_up"}}
    async with Play({**case, "config": {"agents": agents}}, before_tool=[denies]) as play:
        await play.do({"op": "spawn", "parent": "root", "agent": "p", "as": "P"})
        play.runtime.wake(play.nodes["P"], "go")
        assert (await play.runtime.wait(play.nodes["P"])).text == "found:not this one"
        assert (denied, play.world.tools_run) == (["lookup"], [])
    # Its gates are the host's loops around runs; there is none inside a delegation to be bypassed.
    assert case["expect"]["projected_definition"] == "both"
